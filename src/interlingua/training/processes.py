"""Several processes as one (torchrun, accelerate launch): every process draws the same global batch, encodes its
share, sees all vectors, computes the whole loss; the gradients of the shares add up to the gradient of the whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

PATIENCE = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class Processes:
    """The rank of this process, the number of processes, and the device that this one computes on."""

    rank: int
    count: int
    device: torch.device

    @staticmethod
    def join(device: str | None = None) -> Processes:
        """Join the group that the launcher described in the environment; alone without one."""
        count, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
        chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        on_gpu = chosen.type == "cuda"
        if on_gpu:
            chosen = chosen if chosen.index is not None else torch.device("cuda", local)
            torch.cuda.set_device(chosen)
        if count > 1 and not dist.is_initialized():
            # the first process may read a large corpus and learn a vocabulary while the others wait for it
            dist.init_process_group(
                "nccl" if on_gpu else "gloo", timeout=PATIENCE, device_id=chosen if on_gpu else None
            )
        return Processes(dist.get_rank() if count > 1 else 0, count, chosen)

    @property
    def first(self) -> bool:
        """Whether this process writes the files and talks."""
        return self.rank == 0

    def share(self, ordered: Sequence[int]) -> list[list[int]]:
        """Deal indices (sorted by length, say) to the processes like cards: equal work for all."""
        return [list(ordered[rank :: self.count]) for rank in range(self.count)]

    def gather(self, rows: Tensor, shares: list[list[int]]) -> Tensor:
        """All processes' rows as one `[all, dim]` tensor in the original order (no gradient flows through)."""
        total = sum(map(len, shares))
        if self.count == 1:
            pieces = [rows]
        else:
            longest = max(map(len, shares))
            padded = rows.new_zeros(longest, rows.shape[1])
            padded[: len(rows)] = rows
            received = [torch.empty_like(padded) for _ in range(self.count)]
            dist.all_gather(received, padded)
            pieces = [piece[: len(share)] for piece, share in zip(received, shares, strict=True)]
        whole = rows.new_empty(total, rows.shape[1])
        order = torch.tensor([i for share in shares for i in share], dtype=torch.long, device=rows.device)
        whole[order] = torch.cat(pieces)
        return whole

    def sum(self, parameters: Iterable[nn.Parameter], gradients: Iterable[Tensor | None]) -> list[Tensor | None]:
        """Each parameter's gradient summed over the processes; None where no process has one."""
        parameters, gradients = list(parameters), list(gradients)
        if self.count == 1:
            return gradients
        present = torch.tensor([gradient is not None for gradient in gradients], dtype=torch.int32, device=self.device)
        dist.all_reduce(present, dist.ReduceOp.MAX)
        # an embedding may have a row-sparse gradient on one process and none on another
        sparse = torch.tensor([g is not None and g.is_sparse for g in gradients], dtype=torch.int32, device=self.device)
        dist.all_reduce(sparse, dist.ReduceOp.MAX)
        summed: list[Tensor | None] = []
        for parameter, gradient, anyone, rows in zip(
            parameters, gradients, present.tolist(), sparse.tolist(), strict=True
        ):
            if not anyone:
                summed.append(None)
                continue
            if gradient is None:
                whole = torch.zeros_like(parameter)
            else:
                whole = gradient.to_dense() if rows else gradient.clone()
            dist.all_reduce(whole)
            summed.append(whole.to_sparse(1) if rows else whole)
        return summed

    def rows(self, own: Tensor) -> Tensor:
        """The rows of all processes, `[rows · processes, …]`: the first of each, then the second of each, … All have as
        many."""
        if self.count == 1:
            return own
        own = own.to(self.device).contiguous()
        received = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(received, own)
        return torch.stack(received, dim=1).flatten(0, 1)

    def alone(self) -> Processes:
        """This process by itself, for what it computes without the others."""
        return Processes(0, 1, self.device)

    def total(self, value: float) -> float:
        """The sum of a number over the processes."""
        if self.count == 1:
            return value
        cell = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(cell)
        return float(cell)

    def wait(self) -> None:
        """Until all are here."""
        if self.count > 1:
            dist.barrier()
