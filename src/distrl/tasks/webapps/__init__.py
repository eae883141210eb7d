"""Tasks on web apps by others, for Chromium phones that run them: a suite of templates, and a judge on the apps' own data."""
