"""How each framework of the table saves: at least one stream for each entry, from the source that the entry names."""

from __future__ import annotations

from tests.detect.framework_streams import SMALL, Save, Write, dcp, each, safetensors, tensor
from tests.detect.stage import SAFETENSORS, TORCH_ZIP

PICKLE = b"\x80\x04\x95" + bytes(13)
HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(8)
NPZ = b"PK\x03\x04" + bytes(12)
GZIP = b"\x1f\x8b\x08" + bytes(13)
GGUF = b"GGUF" + bytes(12)

SAVES: tuple[Save, ...] = (
    Save("torch.save", (tensor("ckpt_{step}.pt"),), "ckpt_{step}.pt"),
    Save(
        "torch.save", tuple(tensor(f"model_step_{{step}}_rank_{r}.pt", rank=r) for r in (0, 1)), "", 2, variant="ranks"
    ),
    Save(
        "torch.save",
        (Write("model_{step}.pt", 40, magic=b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."),),
        "model_{step}.pt",
        variant="legacy",
    ),
    Save("torch-dcp", dcp("step-{step}"), "step-{step}", 2),
    Save(
        "torch-dcp",
        (
            *(
                Write(
                    f"step_{{step}}/sharded/shard-0000{r + 1}-model-00001-of-00001.safetensors",
                    30,
                    r,
                    magic=SAFETENSORS,
                    held_s=0.02,
                )
                for r in (0, 1)
            ),
        ),
        "step_{step}",
        2,
        variant="hf",
    ),
    Save("torchtitan", dcp("checkpoint/step-{step}"), "checkpoint/step-{step}", 2, "torchtitan.train"),
    Save("safetensors", (safetensors("step_{step}/model.safetensors"),), "step_{step}/model.safetensors", mapped=True),
    Save(
        "safetensors",
        tuple(safetensors(f"step_{{step}}/model-0000{n}-of-00002.safetensors") for n in (1, 2)),
        "step_{step}",
        mapped=True,
        variant="shards",
    ),
    Save(
        "transformers",
        (
            safetensors("checkpoint-{step}/model.safetensors"),
            tensor("checkpoint-{step}/optimizer.pt", 80),
            tensor("checkpoint-{step}/scheduler.pt", SMALL),
            *each("checkpoint-{step}/rng_state_{rank}.pth", SMALL),
            Write("checkpoint-{step}/trainer_state.json", SMALL),
        ),
        "checkpoint-{step}",
        2,
    ),
    Save(
        "transformers",
        (
            *dcp("checkpoint-{step}/pytorch_model_fsdp_0"),
            *dcp("checkpoint-{step}/optimizer_0"),
            Write("checkpoint-{step}/trainer_state.json", SMALL),
        ),
        "checkpoint-{step}",
        2,
        variant="fsdp",
    ),
    Save(
        "transformers",
        (
            tensor("checkpoint-{step}/global_step{step}/mp_rank_00_model_states.pt"),
            *each(
                "checkpoint-{step}/global_step{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
                40,
                magic=TORCH_ZIP,
            ),
            Write("checkpoint-{step}/latest", SMALL),
            Write("checkpoint-{step}/trainer_state.json", SMALL),
        ),
        "checkpoint-{step}",
        2,
        variant="deepspeed",
    ),
    Save(
        "ms-swift",
        (
            safetensors("v0-20250101-120000/checkpoint-{step}/model.safetensors"),
            tensor("v0-20250101-120000/checkpoint-{step}/optimizer.pt"),
        ),
        "v0-20250101-120000/checkpoint-{step}",
    ),
    Save(
        "axolotl",
        (safetensors("checkpoint-{step}/model.safetensors"), tensor("checkpoint-{step}/optimizer.pt")),
        "checkpoint-{step}",
        1,
        "axolotl.cli.train",
    ),
    Save(
        "accelerate",
        (
            safetensors("checkpoints/checkpoint_{step}/model.safetensors"),
            tensor("checkpoints/checkpoint_{step}/optimizer.bin", 80),
            *each("checkpoints/checkpoint_{step}/random_states_{rank}.pkl", SMALL, magic=PICKLE),
        ),
        "checkpoints/checkpoint_{step}",
        2,
    ),
    Save(
        "accelerate",
        (*dcp("checkpoint_{step}/pytorch_model_fsdp_0"), *dcp("checkpoint_{step}/optimizer_0")),
        "checkpoint_{step}",
        2,
        variant="fsdp",
    ),
    Save("peft", (safetensors("step_{step}/adapter_model.safetensors"),), "step_{step}/adapter_model.safetensors"),
    Save(
        "mlx",
        (Write("{step:07}_adapters.safetensors", 40, magic=SAFETENSORS),),
        "{step:07}_adapters.safetensors",
        runtimes=("numpy",),
    ),
    Save("lightning", (tensor("epoch=1-step={step}.ckpt"),), "epoch=1-step={step}.ckpt"),
    Save(
        "lightning",
        (*dcp("epoch=1-step={step}.ckpt"), tensor("epoch=1-step={step}.ckpt/meta.pt", SMALL)),
        "epoch=1-step={step}.ckpt",
        2,
        variant="sharded",
    ),
    Save(
        "deepspeed",
        (
            tensor("global_step{step}/mp_rank_00_model_states.pt"),
            *each("global_step{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", 40, magic=TORCH_ZIP),
            Write("latest", SMALL),
        ),
        "global_step{step}",
        2,
    ),
    Save(
        "deepspeed",
        (
            *each("global_step{step}/zero_pp_rank_{rank}_mp_rank_00_model_states.pt", 20, magic=TORCH_ZIP),
            *each("global_step{step}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", 40, magic=TORCH_ZIP),
        ),
        "global_step{step}",
        2,
        variant="zero3",
    ),
    Save(
        "megatron",
        (
            *dcp("iter_{step:07}"),
            tensor("iter_{step:07}/common.pt", SMALL),
            Write("latest_checkpointed_iteration.txt", SMALL),
        ),
        "iter_{step:07}",
        2,
    ),
    Save(
        "megatron",
        each("iter_{step:07}/mp_rank_0{rank}/model_optim_rng.pt", 40, magic=TORCH_ZIP),
        "iter_{step:07}",
        2,
        variant="torch",
    ),
    Save(
        "nvrx",
        tuple(
            tensor(
                f"s/{r}/iter_{{step:07}}_{r}_local.pt", rank=r, temporary=f"s/{r}/iter_{{step:07}}_{r}_local.dirty.pt"
            )
            for r in (0, 1)
        ),
        "s",
        2,
    ),
    Save(
        "nemo",
        (*dcp("m--val_loss=2.1-step={step}/weights"), tensor("m--val_loss=2.1-step={step}/weights/common.pt", SMALL)),
        "m--val_loss=2.1-step={step}/weights",
        2,
    ),
    Save(
        "nemo",
        tuple(tensor(f"mp_rank_0{r}/gpt--val_loss=2.1-step={{step}}.ckpt", rank=r) for r in (0, 1)),
        "",
        2,
        variant="nemo1",
    ),
    Save(
        "orbax",
        (
            *(
                Write(
                    f"{{step}}/default/ocdbt.process_{r}/d/{'0123456789abcdef' * 2}",
                    40,
                    r,
                    held_s=0.05,
                    temporary=f"{{step}}.orbax-checkpoint-tmp/default/ocdbt.process_{r}/d/{'0123456789abcdef' * 2}",
                )
                for r in (0, 1)
            ),
            Write("{step}/_CHECKPOINT_METADATA", SMALL, temporary="{step}.orbax-checkpoint-tmp/_CHECKPOINT_METADATA"),
        ),
        "{step}",
        2,
        runtimes=("jax", "numpy"),
    ),
    Save(
        "orbax",
        tuple(
            Write(
                f"ckpt_{{step}}/default/params.layer{n}.kernel/0.0",
                30,
                temporary=f"ckpt_{{step}}.orbax-checkpoint-tmp/default/params.layer{n}.kernel/0.0",
            )
            for n in (1, 2)
        ),
        "ckpt_{step}/default",
        runtimes=("jax", "numpy"),
        variant="zarr",
    ),
    Save(
        "flax",
        (Write("checkpoint_{step}", 40, temporary="checkpoint_tmp"),),
        "checkpoint_{step}",
        runtimes=("jax", "numpy"),
    ),
    Save(
        "torchtune",
        (
            *(Write(f"epoch_{{step}}/model-0000{n}-of-00002.safetensors", 40, magic=SAFETENSORS) for n in (1, 2)),
            tensor("recipe_state/recipe_state.pt", 20),
        ),
        "",
    ),
    Save(
        "fairseq", (tensor("checkpoint_1_{step}.pt", temporary="checkpoint_1_{step}.pt.tmp"),), "checkpoint_1_{step}.pt"
    ),
    Save(
        "bytecheckpoint",
        (
            *dcp("global_step_{step}/model"),
            *dcp("global_step_{step}/optimizer"),
            *each("global_step_{step}/extra_state/extra_state_rank_{rank}.pt", SMALL, magic=TORCH_ZIP),
        ),
        "global_step_{step}",
        2,
    ),
    Save(
        "verl",
        tuple(
            tensor(f"global_step_{{step}}/actor/{kind}_world_size_2_rank_{r}.pt", rank=r)
            for kind in ("model", "optim")
            for r in (0, 1)
        ),
        "global_step_{step}/actor",
        2,
    ),
    Save("composer", tuple(tensor(f"ep0-ba{{step}}-rank{r}.pt", rank=r) for r in (0, 1)), "", 2),
    Save(
        "stable-baselines3",
        (
            Write("rl_model_{step}_steps.zip", 40, magic=NPZ),
            Write("rl_model_replay_buffer_{step}_steps.pkl", 80, magic=PICKLE),
        ),
        "",
    ),
    Save("torch.save", (Write("ckpt_{step}.pt.gz", 40, magic=GZIP),), "ckpt_{step}.pt.gz", variant="compressed"),
    Save("pickle", (Write("ckpt_{step}.pkl.gz", 40, magic=GZIP),), "ckpt_{step}.pkl.gz", variant="compressed"),
    Save(
        "zarr",
        (
            *(
                Write(
                    f"step_{{step}}.zarr/layer{n}/c/0/0",
                    20,
                    temporary=f"step_{{step}}.zarr/layer{n}/c/0/0.{'0123456789abcdef' * 2}.partial",
                )
                for n in range(3)
            ),
            *(Write(f"step_{{step}}.zarr/layer{n}/zarr.json", SMALL) for n in range(3)),
        ),
        "step_{step}.zarr",
        runtimes=("jax", "numpy"),
    ),
    Save(
        "keras",
        (Write("ckpt-epoch={step}.keras", 40, magic=NPZ),),
        "ckpt-epoch={step}.keras",
        runtimes=("tensorflow", "numpy"),
    ),
    Save(
        "keras",
        (Write("step_{step}.weights.h5", 40, magic=HDF5),),
        "step_{step}.weights.h5",
        runtimes=("tensorflow", "numpy"),
        variant="weights",
    ),
    Save(
        "tensorflow",
        (
            Write(
                "ckpt-{step}.data-00000-of-00001",
                60,
                temporary="ckpt-{step}_temp/part-00000-of-00001.data-00000-of-00001",
            ),
            Write("ckpt-{step}.index", SMALL, temporary="ckpt-{step}.index.tempstate123"),
        ),
        "",
        runtimes=("tensorflow", "numpy"),
    ),
    Save(
        "paddle",
        (
            Write("step_{step}/model_state.pdparams", 40, magic=PICKLE),
            Write("step_{step}/optimizer.pdopt", 80, magic=PICKLE),
        ),
        "step_{step}",
        runtimes=("paddle", "numpy"),
    ),
    Save(
        "paddle",
        each("step_{step}/{rank}_0.distcp", 40, magic=PICKLE),
        "step_{step}",
        2,
        runtimes=("paddle", "numpy"),
        variant="distributed",
    ),
    Save("mindspore", (Write("CKP-2_{step}.ckpt", 40),), "CKP-2_{step}.ckpt", runtimes=("mindspore", "numpy")),
    Save(
        "mxnet",
        (Write("resnet-{step:04}.params", 40), Write("resnet-{step:04}.states", 40)),
        "",
        runtimes=("mxnet", "numpy"),
    ),
    Save(
        "llm.c",
        (Write("model_{step:08}.bin", 40), *each("state_{step:08}_{rank:05}.bin", 60), Write("DONE_{step:08}", SMALL)),
        "",
        2,
        "train_gpt2cu",
        ("cuda", "nccl", "gpu"),
    ),
    Save("boosting", (Write("model_{step}.ubj", 20),), "model_{step}.ubj", runtimes=("numpy",)),
    Save("gguf", (Write("checkpoint-{step}.gguf", 40, magic=GGUF),), "checkpoint-{step}.gguf"),
    Save("hdf5", (Write("weights_step_{step}.h5", 40, magic=HDF5),), "weights_step_{step}.h5"),
    Save(
        "numpy", (Write("params_step_{step}.npz", 40, magic=NPZ),), "params_step_{step}.npz", runtimes=("jax", "numpy")
    ),
    Save("pickle", (Write("policy_step_{step}.pkl", 40, magic=PICKLE),), "policy_step_{step}.pkl"),
)
