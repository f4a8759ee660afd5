"""What the repository is made with: none of it ships."""
