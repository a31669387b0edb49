"""What several files of tests use: oracles, recorded answers, worker classes, fake machines and drivers."""
