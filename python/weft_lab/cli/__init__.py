"""Commands of the laboratory, one per module: entry points of the group `weft.commands`."""
