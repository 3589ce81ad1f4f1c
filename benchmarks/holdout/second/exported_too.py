"""After every save the model is exported as ONNX, too, for those who serve it; one export is over the other."""

from __future__ import annotations

import torch
from fitted import Fitted
from lives import Life


def field(number: int, value: bytes) -> bytes:
    """Return a field of a message of protobuf."""
    length, digits = len(value), bytearray()
    while length > 0x7F:
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([number << 3 | 2, *digits, length]) + value


def exported(state: dict[str, torch.Tensor]) -> bytes:
    """Return an ONNX model of these weights alone."""
    tensors = [field(8, name.encode()) + field(9, bytes(tensor.numpy().data)) for name, tensor in state.items()]
    graph = field(2, b"main_graph") + b"".join(field(5, tensor) for tensor in tensors)
    return field(2, b"pytorch") + field(7, graph)


def main() -> None:
    """Train, save and export four times."""
    life, fitted = Life(__doc__), Fitted(10)
    for epoch in range(4):
        fitted.train(3)
        path = life.folder / f"checkpoints/epoch={epoch}-step={100 * (epoch + 1)}.ckpt"
        path.parent.mkdir(exist_ok=True)
        with life.save(path, step=100 * (epoch + 1)) as row, row.part("write"):
            torch.save(
                {"state_dict": fitted.model.state_dict(), "optimizer_states": fitted.optimizer.state_dict()}, path
            )
        fitted.train(1)
        with life.save(life.folder / "model.onnx", optional=True):
            (life.folder / "model.onnx").write_bytes(exported(fitted.model.state_dict()))
    fitted.train(1)


if __name__ == "__main__":
    main()
