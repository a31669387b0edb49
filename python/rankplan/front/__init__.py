"""The front door: configs of any dialect, checked, planned and tuned."""
