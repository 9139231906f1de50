"""Names of keys in nanoGPT, LitGPT, Hugging Face and JoeyNMT, and what they are called here; for suggestions only."""

_NAMES = {
    "model.d_model": "n_embd hidden_size embed_dim dim",
    "model.n_layers": "n_layer num_layers num_hidden_layers depth",
    "model.n_heads": "n_head num_heads num_attention_heads",
    "model.n_kv_heads": "num_key_value_heads",
    "model.d_ff": "intermediate_size n_inner ff_size",
    "model.dropout_rate": "dropout hidden_dropout_prob resid_pdrop",
    "model.activation": "hidden_act activation_function",
    "model.norm_eps": "layer_norm_eps",
    "model.positions.kind": "position_embedding_type",
    "model.kind": "model_type",
    "model.tied": "tie_weights tie_word_embeddings tied_embeddings weight_tying",
    "model.init_from": "model_name_or_path from_pretrained pretrained load_model",
    "train.context": (
        "block_size max_seq_length max_seq_len max_length seq_len sequence_length n_positions max_position_embeddings"
    ),
    "train.steps": "max_iters max_steps updates n_steps num_steps",
    "train.epochs": "num_train_epochs num_epochs",
    "train.tokens": "max_tokens",
    "train.batch_size": "per_device_train_batch_size train_batch_size global_batch_size batch_multiplier",
    "train.micro_batch_size (fewer rows at once need less memory)": "gradient_checkpointing activation_checkpointing",
    "train.micro_batch_size (accumulation is batch_size / micro_batch_size)": "gradient_accumulation_steps",
    "train.seed": "random_seed",
    "train.freeze": "freeze_layers frozen",
    "optimizer.lr": "learning_rate lr",
    "optimizer.eps": "adam_epsilon",
    "optimizer.betas": "beta1 beta2 adam_beta1 adam_beta2",
    "optimizer.clip": "grad_clip max_grad_norm max_norm gradient_clip_val clip_grad_norm",
    "optimizer.kind": "optim",
    "schedule.kind": "lr_scheduler_type lr_scheduler scheduler",
    "schedule.kind (constant is without decay; others end with the run)": "decay_lr lr_decay_iters",
    "schedule.warmup": "warmup_steps warmup_iters warmup_ratio lr_warmup_steps learning_rate_warmup",
    "schedule.floor (a share of lr)": "min_lr",
    "objective.mask_rate": "mlm_probability masking_ratio",
    "objective.noise.mean_length": "mean_noise_span_length",
    "objective.weight": "disc_weight",
    "objective.generator_width": "generator_hidden_size",
    "objective.label_smoothing": "label_smoothing_factor",
    "objective.labels (a list, as [neg, pos]; without it they are counted in the data)": (
        "num_labels num_classes n_classes id2label label2id"
    ),
    "adapter": "lora peft",
    "data.train": "dataset train_file dataset_name train_data",
    "data.split (a share such as 10%; data.val names a file)": "val validation val_split val_ratio val_size",
    "data.val": "validation_file val_file val_data dev_file",
    "data.fields": "text_column_name",
    "data.max_train_samples": "max_samples max_examples max_rows rows",
    "data.split": "validation_split_percentage",
    "data.pack": "packing",
    "tokenizer.path": "tokenizer_name tokenizer_path tokenizer",
    "eval.every_steps": "eval_interval eval_steps interval validation_freq eval_freq",
    "eval.tokens": "eval_iters",
    "eval.best": "metric_for_best_model",
    "eval.patience": "early_stopping_patience early_stopping",
    "checkpoint.every_steps": "save_steps save_interval",
    "checkpoint.keep_last": "save_total_limit",
    "log.every_steps": "log_interval logging_steps",
    "generate.num_beams": "beam_size",
    "generate.length_penalty": "beam_alpha",
    "runtime.device": "use_cuda use_gpu cuda accelerator",
    "runtime.precision (fp32, bf16 or fp16)": "dtype torch_dtype mixed_precision bf16 use_bf16 fp16 use_fp16 half",
    "runtime.compile": "torch_compile",
    "runtime.threads": "num_threads num_workers",
}
_WAYS = {
    "--nproc N is the number of processes": "devices num_devices n_gpus num_gpus gpus world_size num_processes",
    "-d DIR or -n NAME chooses the run folder": "out_dir output_dir model_dir save_dir run_name",
    "--tensorboard writes event files": "wandb wandb_log report_to tensorboard",
    "the same command continues an unfinished run, --extend N trains a finished one further": (
        "resume resume_from_checkpoint"
    ),
}
OTHER_NAMES = {name: key for key, names in _NAMES.items() for name in names.split()}
"""The key, sometimes with a remark behind it, as its values differ, by its name elsewhere."""
OTHER_WAYS = {name: way for way, names in _WAYS.items() for name in names.split()}
"""What there is in place of a key, by its name elsewhere."""
