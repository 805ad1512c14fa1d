"""Read the files that describe a job: axolotl, ROLL, LLaMA-Factory, accelerate, DeepSpeed, TrainingArguments, config.json."""
