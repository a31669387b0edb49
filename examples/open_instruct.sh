# open-instruct: 8 learners on each of 2 nodes, and 8 engines on a third; bash open_instruct.sh
python mason.py --cluster ai2/jupiter --num_nodes 3 --gpus 8 -- source configs/beaker_configs/ray_node_setup.sh \&\& \
    python open_instruct/grpo_fast.py --model_name_or_path Qwen/Qwen2.5-7B --num_learners_per_node 8 8 --vllm_num_engines 8
