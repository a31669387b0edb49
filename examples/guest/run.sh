#!/bin/bash
python -m tinyrl.train tinyrl.nodes=2 learner.gpus=8 learner.tensor=2 sampler.engines=4 sampler.tensor=2
