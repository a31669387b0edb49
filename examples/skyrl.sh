# SkyRL: two engines, then the policy and its reference model. Run it: rankplan run examples/skyrl.sh --nodes 3x4 --simulate
TP=4
uv run -m skyrl.train.entrypoints.main_base \
    trainer.placement.colocate_all=false \
    trainer.placement.policy_num_nodes=1 trainer.placement.policy_num_gpus_per_node=4 \
    trainer.placement.ref_num_nodes=1 trainer.placement.ref_num_gpus_per_node=4 \
    generator.inference_engine.num_engines=2 generator.inference_engine.tensor_parallel_size=$TP
