"""Where bytes lie: local files, remote folders, and how they get there whole."""
