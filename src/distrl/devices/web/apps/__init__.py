"""Web apps by others, from the npm registry, on Chromium phones: started here on loopback, set up and read through their own interfaces."""
