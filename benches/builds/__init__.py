"""An old build of weft against a new one, with the old one once more as the control."""
