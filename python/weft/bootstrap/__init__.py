"""Stores and endpoints: how ranks find each other."""
