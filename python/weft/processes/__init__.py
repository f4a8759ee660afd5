"""Ranks as processes of this host, and its free ports."""
