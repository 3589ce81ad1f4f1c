"""A save of each framework, file by file, as its source writes them; by its name in the table."""

from __future__ import annotations

from tests.frameworks.example_saves import (
    GGUF,
    GZIP,
    HDF5,
    NPZ,
    PICKLE,
    SAFETENSORS,
    SMALL,
    TENSORIZER,
    TORCH_ZIP,
    ExampleFile,
    ExampleSave,
    dcp_files,
    example_save,
    files_of_ranks,
    safetensors_file,
    torch_file,
)

EXAMPLES: dict[str, tuple[ExampleSave, ...]] = {
    "megatron": (
        example_save(
            *dcp_files("iter_{step:07}"),
            torch_file("iter_{step:07}/common.pt", SMALL),
            ExampleFile("latest_checkpointed_iteration.txt", SMALL),
        ),
        example_save(
            *files_of_ranks(ExampleFile("iter_{step:07}/mp_rank_0{rank}/model_optim_rng.pt", 40, magic=TORCH_ZIP)),
            variant="torch",
        ),
    ),
    "nemo": (
        example_save(
            *dcp_files("m--val_loss=2.1-step={step}/weights"),
            torch_file("m--val_loss=2.1-step={step}/weights/common.pt", SMALL),
        ),
        example_save(
            *files_of_ranks(torch_file("mp_rank_0{rank}/gpt--val_loss=2.1-step={step}.ckpt")), variant="nemo1"
        ),
    ),
    "ms-swift": (
        example_save(
            safetensors_file("v0-20250101-120000/checkpoint-{step}/model.safetensors"),
            torch_file("v0-20250101-120000/checkpoint-{step}/optimizer.pt"),
        ),
    ),
    "axolotl": (
        example_save(
            safetensors_file("checkpoint-{step}/model.safetensors"),
            torch_file("checkpoint-{step}/optimizer.pt"),
            program="axolotl.cli.train",
        ),
    ),
    "transformers": (
        example_save(
            safetensors_file("checkpoint-{step}/model.safetensors"),
            torch_file("checkpoint-{step}/optimizer.pt", 80),
            torch_file("checkpoint-{step}/scheduler.pt", SMALL),
            *files_of_ranks(ExampleFile("checkpoint-{step}/rng_state_{rank}.pth", SMALL)),
            ExampleFile("checkpoint-{step}/trainer_state.json", SMALL),
        ),
        example_save(
            *dcp_files("checkpoint-{step}/pytorch_model_fsdp_0"),
            *dcp_files("checkpoint-{step}/optimizer_0"),
            ExampleFile("checkpoint-{step}/trainer_state.json", SMALL),
            variant="fsdp",
        ),
        example_save(
            torch_file("checkpoint-{step}/global_step{step}/mp_rank_00_model_states.pt"),
            *files_of_ranks(
                ExampleFile(
                    "checkpoint-{step}/global_step{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
                    40,
                    magic=TORCH_ZIP,
                )
            ),
            ExampleFile("checkpoint-{step}/latest", SMALL),
            ExampleFile("checkpoint-{step}/trainer_state.json", SMALL),
            path="checkpoint-{step}",
            variant="deepspeed",
        ),
    ),
    "lightning": (
        example_save(torch_file("epoch=1-step={step}.ckpt")),
        example_save(
            *dcp_files("epoch=1-step={step}.ckpt"),
            torch_file("epoch=1-step={step}.ckpt/meta.pt", SMALL),
            variant="sharded",
        ),
    ),
    "verl": (
        example_save(
            *files_of_ranks(torch_file("global_step_{step}/actor/model_world_size_2_rank_{rank}.pt")),
            *files_of_ranks(torch_file("global_step_{step}/actor/optim_world_size_2_rank_{rank}.pt")),
        ),
    ),
    "torchtitan": (example_save(*dcp_files("checkpoint/step-{step}"), program="torchtitan.train"),),
    "torchtune": (
        example_save(
            *(ExampleFile(f"epoch_{{step}}/model-0000{n}-of-00002.safetensors", 40, magic=SAFETENSORS) for n in (1, 2)),
            torch_file("recipe_state/recipe_state.pt", 20),
        ),
    ),
    "fairseq": (example_save(torch_file("checkpoint_1_{step}.pt", temporary="checkpoint_1_{step}.pt.tmp")),),
    "composer": (example_save(*files_of_ranks(torch_file("ep0-ba{step}-rank{rank}.pt"))),),
    "stable-baselines3": (
        example_save(
            ExampleFile("rl_model_{step}_steps.zip", 40, magic=NPZ),
            ExampleFile("rl_model_replay_buffer_{step}_steps.pkl", 80, magic=PICKLE),
        ),
    ),
    "paddle": (
        example_save(
            ExampleFile("step_{step}/model_state.pdparams", 40, magic=PICKLE),
            ExampleFile("step_{step}/optimizer.pdopt", 80, magic=PICKLE),
            runtimes=("paddle", "numpy"),
        ),
        example_save(
            *files_of_ranks(ExampleFile("step_{step}/{rank}_0.distcp", 40, magic=PICKLE)),
            runtimes=("paddle", "numpy"),
            variant="distributed",
        ),
    ),
    "llm.c": (
        example_save(
            ExampleFile("model_{step:08}.bin", 40),
            *files_of_ranks(ExampleFile("state_{step:08}_{rank:05}.bin", 60)),
            ExampleFile("DONE_{step:08}", SMALL),
            program="train_gpt2cu",
            runtimes=("cuda", "nccl", "gpu"),
        ),
    ),
    "detectron2": (
        example_save(torch_file("output/model_{step:07}.pth"), ExampleFile("output/last_checkpoint", SMALL)),
    ),
    "ultralytics": (
        example_save(
            torch_file("detect/train/weights/last.pt"),
            torch_file("detect/train/weights/epoch{step}.pt"),
            path="detect/train/weights/epoch{step}.pt",
        ),
    ),
    "nvrx": (
        example_save(
            *files_of_ranks(
                torch_file(
                    "s/{rank}/iter_{step:07}_{rank}_local.pt",
                    temporary="s/{rank}/iter_{step:07}_{rank}_local.dirty.pt",
                )
            )
        ),
    ),
    "bytecheckpoint": (
        example_save(
            *dcp_files("global_step_{step}/model"),
            *dcp_files("global_step_{step}/optimizer"),
            *files_of_ranks(
                ExampleFile("global_step_{step}/extra_state/extra_state_rank_{rank}.pt", SMALL, magic=TORCH_ZIP)
            ),
        ),
    ),
    "accelerate": (
        example_save(
            safetensors_file("checkpoints/checkpoint_{step}/model.safetensors"),
            torch_file("checkpoints/checkpoint_{step}/optimizer.bin", 80),
            *files_of_ranks(ExampleFile("checkpoints/checkpoint_{step}/random_states_{rank}.pkl", SMALL, magic=PICKLE)),
        ),
        example_save(
            *dcp_files("checkpoint_{step}/pytorch_model_fsdp_0"),
            *dcp_files("checkpoint_{step}/optimizer_0"),
            variant="fsdp",
        ),
    ),
    "deepspeed": (
        example_save(
            torch_file("global_step{step}/mp_rank_00_model_states.pt"),
            *files_of_ranks(
                ExampleFile(
                    "global_step{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", 40, magic=TORCH_ZIP
                )
            ),
            ExampleFile("latest", SMALL),
        ),
        example_save(
            *files_of_ranks(
                ExampleFile("global_step{step}/zero_pp_rank_{rank}_mp_rank_00_model_states.pt", 20, magic=TORCH_ZIP)
            ),
            *files_of_ranks(
                ExampleFile("global_step{step}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", 40, magic=TORCH_ZIP)
            ),
            variant="zero3",
        ),
    ),
    "orbax": (
        example_save(
            *files_of_ranks(
                ExampleFile(
                    "{step}/default/ocdbt.process_{rank}/d/0123456789abcdef0123456789abcdef",
                    40,
                    sync_seconds=0.05,
                    temporary="{step}.orbax-checkpoint-tmp/default/ocdbt.process_{rank}/d/0123456789abcdef0123456789abcdef",
                )
            ),
            ExampleFile(
                "{step}/_CHECKPOINT_METADATA", SMALL, temporary="{step}.orbax-checkpoint-tmp/_CHECKPOINT_METADATA"
            ),
            path="{step}",
            runtimes=("jax", "numpy"),
        ),
        example_save(
            *tuple(
                ExampleFile(
                    f"ckpt_{{step}}/default/params.layer{n}.kernel/0.0",
                    30,
                    temporary=f"ckpt_{{step}}.orbax-checkpoint-tmp/default/params.layer{n}.kernel/0.0",
                )
                for n in (1, 2)
            ),
            runtimes=("jax", "numpy"),
            variant="zarr",
        ),
    ),
    "torch-dcp": (
        example_save(*dcp_files("step-{step}")),
        example_save(
            *files_of_ranks(
                ExampleFile(
                    "step_{step}/sharded/shard-{rank1:05}-model-00001-of-00001.safetensors",
                    30,
                    magic=SAFETENSORS,
                    sync_seconds=0.02,
                )
            ),
            path="step_{step}",
            variant="hf",
        ),
    ),
    "tensorflow": (
        example_save(
            ExampleFile(
                "ckpt-{step}.data-00000-of-00001",
                60,
                temporary="ckpt-{step}_temp/part-00000-of-00001.data-00000-of-00001",
            ),
            ExampleFile("ckpt-{step}.index", SMALL, temporary="ckpt-{step}.index.tempstate123"),
            path="",
            runtimes=("tensorflow", "numpy"),
        ),
    ),
    "mindspore": (example_save(ExampleFile("CKP-2_{step}.ckpt", 40), runtimes=("mindspore", "numpy")),),
    "mxnet": (
        example_save(
            ExampleFile("resnet-{step:04}.params", 40),
            ExampleFile("resnet-{step:04}.states", 40),
            runtimes=("mxnet", "numpy"),
        ),
    ),
    "flax": (
        example_save(ExampleFile("checkpoint_{step}", 40, temporary="checkpoint_tmp"), runtimes=("jax", "numpy")),
    ),
    "keras": (
        example_save(ExampleFile("ckpt-epoch={step}.keras", 40, magic=NPZ), runtimes=("tensorflow", "numpy")),
        example_save(
            ExampleFile("step_{step}.weights.h5", 40, magic=HDF5),
            runtimes=("tensorflow", "numpy"),
            variant="weights",
        ),
    ),
    "peft": (example_save(safetensors_file("step_{step}/adapter_model.safetensors")),),
    "mlx": (example_save(ExampleFile("{step:07}_adapters.safetensors", 40, magic=SAFETENSORS), runtimes=("numpy",)),),
    "safetensors": (
        example_save(safetensors_file("step_{step}/model.safetensors"), mapped=True),
        example_save(
            *tuple(safetensors_file(f"step_{{step}}/model-0000{n}-of-00002.safetensors") for n in (1, 2)),
            mapped=True,
            variant="shards",
        ),
    ),
    "tensorizer": (example_save(ExampleFile("step_{step}/model.tensors", 40, magic=TENSORIZER)),),
    "torch.save": (
        example_save(torch_file("ckpt_{step}.pt")),
        example_save(*files_of_ranks(torch_file("model_step_{step}_rank_{rank}.pt")), variant="ranks"),
        example_save(
            ExampleFile("model_{step}.pt", 40, magic=b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."), variant="legacy"
        ),
        example_save(ExampleFile("ckpt_{step}.pt.gz", 40, magic=GZIP), variant="compressed"),
    ),
    "boosting": (example_save(ExampleFile("model_{step}.ubj", 20), runtimes=("numpy",)),),
    "gguf": (example_save(ExampleFile("checkpoint-{step}.gguf", 40, magic=GGUF)),),
    "hdf5": (example_save(ExampleFile("weights_step_{step}.h5", 40, magic=HDF5)),),
    "numpy": (example_save(ExampleFile("params_step_{step}.npz", 40, magic=NPZ), runtimes=("jax", "numpy")),),
    "pickle": (
        example_save(ExampleFile("ckpt_{step}.pkl.gz", 40, magic=GZIP), variant="compressed"),
        example_save(ExampleFile("policy_step_{step}.pkl", 40, magic=PICKLE)),
    ),
    "zarr": (
        example_save(
            *(
                ExampleFile(
                    f"step_{{step}}.zarr/layer{n}/c/0/0",
                    20,
                    temporary=f"step_{{step}}.zarr/layer{n}/c/0/0.{'0123456789abcdef' * 2}.partial",
                )
                for n in range(3)
            ),
            *(ExampleFile(f"step_{{step}}.zarr/layer{n}/zarr.json", SMALL) for n in range(3)),
            runtimes=("jax", "numpy"),
        ),
        example_save(ExampleFile("step_{step}.zarr.zip", 20), runtimes=("numpy",)),
    ),
}
