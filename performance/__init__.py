"""How fast RapidTrainer and the graders are, and what the time goes into: `make bench`."""
