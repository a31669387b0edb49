# TRL: a server of vLLM beside the trainer, on the devices of one node. Check it: rankplan check examples/trl.sh
CUDA_VISIBLE_DEVICES=0,1 trl vllm-serve --model Qwen/Qwen3-4B --tensor_parallel_size 2 &
CUDA_VISIBLE_DEVICES=2,3,4,5,6,7 trl grpo --model_name_or_path Qwen/Qwen3-4B --dataset_name trl-lib/DeepMath-103K \
    --accelerate_config zero3 --num_processes 6 --use_vllm --vllm_mode server
