# OpenRLHF: everything on the actor's GPUs. Run it: rankplan run examples/openrlhf.sh --nodes 3x4 --simulate
python3 -m openrlhf.cli.train_ppo_ray \
    --actor.num_nodes 1 --actor.num_gpus_per_node 4 \
    --ref.num_nodes 1 --ref.num_gpus_per_node 4 \
    --vllm.num_engines 2 --vllm.tensor_parallel_size 2 \
    --reward.remote_url http://rewards:5000 --algo.advantage.estimator rloo --train.colocate_all
