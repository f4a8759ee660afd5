"""The experiment of ranks that come and go: training through kills, stops, joins and cut lines."""
