"""Android phones and emulators over ADB."""
