"""A Chromium phone: pages with a phone's screen and touch, over the DevTools protocol."""
