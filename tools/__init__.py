"""Development tools of the repository: none of it ships."""
