"""Rules of several processes, as threads of this one; and that threads keep the contract that processes keep."""

import math
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import in_processes
from threads import in_threads, process_ranks
from torch import Tensor, nn

from mini_tf.parallel import dividing
from mini_tf.parallel.dividing import DividedOutputs, Team, divided
from mini_tf.parallel.full_sharding import ReduceScatter
from mini_tf.parallel.group import ProcessGroup, refuse_different
from mini_tf.parallel.reduction import REDUCTIONS, Reduction
from mini_tf.parallel.sharding import Sharding
from mini_tf.parallel.torch_group import MESSAGE
from mini_tf.recipe.sections import Runtime
from mini_tf.system.errors import DataFault, MinitfError, ProcessLost, RunFault
from mini_tf.system.processes import ProcessRank

LENGTHS = [0, 1, 4079, *range(MESSAGE - 14, MESSAGE + 6), 2 * MESSAGE - 10, 9 * MESSAGE]
"""Of texts in messages, the critical ones among them: of 4,096 bytes, 8 are the length, and 2 the quotes of JSON."""


SHAPES = ((40,), (3, 13), ())
"""Of parameters: enough numbers that sums in another order differ in their last bits."""


def messages(rank: int) -> list[Any]:
    """What a process gathers, one after the other."""
    texts = ["x" * length for length in LENGTHS]
    uneven = ["y" * length if rank == 1 else rank for length in (MESSAGE - 9, MESSAGE - 10, 3 * MESSAGE)]
    return [rank, None, [math.inf, -math.inf], {"a": [rank, {"b": True}]}, "\u4e16\0", *texts, *uneven]


def tensors_of(rank: int) -> dict[str, Tensor]:
    """Of every type; some on one process only, and a place held on the meta device."""
    own = torch.arange(6.0).view(2, 3) + rank
    several = {
        "both": own,
        "later": torch.empty(2, device="meta") if rank == 0 else torch.tensor([1.5, 2.5]),
        f"of-{rank}": torch.tensor(rank + 0.5, dtype=torch.bfloat16),
        f"turned-{rank}": own.T,
        f"flags-{rank}": torch.tensor([True, rank == 1]),
        f"numbers-{rank}": torch.tensor([[-rank]], dtype=torch.int64),
    }
    return several | ({"last": torch.full((0, 4), rank), "late": torch.full((1, 4), rank)} if rank else {})


def use_all(group: ProcessGroup) -> dict[str, Any]:
    """What every method of a group gives, as JSON."""
    rank, last = group.rank, group.world_size - 1
    seen: dict[str, Any] = {"rank": [rank, group.world_size, group.is_rank_0]}
    seen["all_gather"] = [
        group.all_gather(message) == [messages(other)[n] for other in range(group.world_size)]
        for n, message in enumerate(messages(rank))
    ]
    seen["nan"] = [math.isnan(value) for value in group.all_gather(math.nan if rank else 1.0)]
    called = list[int]()
    seen["on_rank_0"] = [group.on_rank_0(lambda: [called.append(rank), "of", rank]), called]
    collected = group.gather(tensors_of(rank))
    seen["gather"] = [[name, str(t.dtype), [*t.shape], t.double().flatten().tolist()] for name, t in collected.items()]
    added, sent = torch.tensor([1.0, 10.0**rank]), torch.tensor([float(rank), -0.0])
    group.all_reduce(added)
    seen["all_reduce"] = added.tolist()
    swapped = group.send_recv(sent, rank ^ 1)
    seen["send_recv"] = [swapped.tolist(), sent.tolist()]
    for source in (0, last):
        tensor = torch.full((2, 2), float(rank))
        group.broadcast(tensor, source)
        seen[f"broadcast {source}"] = tensor.tolist()
    with group.communication():
        group.barrier()
    with group.independently():
        pass
    for failing in (0, last):
        seen[f"failure of {failing}"] = failing_alone(group, failing)
    return seen


def failing_alone(group: ProcessGroup, failing: int) -> list[str]:
    """What is raised where one process has an error while all work by themselves."""
    try:
        with group.independently():
            if group.rank == failing:
                raise DataFault("bad")
    except MinitfError as error:
        return [type(error).__name__, error.message]
    return []


def expected(rank: int, size: int) -> dict[str, Any]:
    first = tensors_of(0)
    more = {name: tensor for other in range(1, size) for name, tensor in tensors_of(other).items()}
    collected = {name: more[name] if tensor.is_meta else tensor for name, tensor in first.items()}
    collected |= {name: tensor for name, tensor in more.items() if name not in first}
    collected |= {name: tensors_of(1)[name] for name in ("last", "late", "later")}  # of several the first
    lost = ["ProcessLost", "another process of the run failed"]
    return {
        "rank": [rank, size, rank == 0],
        "all_gather": [True] * len(messages(rank)),
        "nan": [other > 0 for other in range(size)],
        "on_rank_0": [[None, "of", 0], [0] * (rank == 0)],
        "gather": [[n, str(t.dtype), [*t.shape], t.double().flatten().tolist()] for n, t in collected.items()]
        if rank == 0
        else [],
        "all_reduce": [float(size), sum(10.0**other for other in range(size))],
        "send_recv": [[float(rank ^ 1), -0.0], [float(rank), -0.0]],
        "broadcast 0": [[0.0, 0.0], [0.0, 0.0]],
        f"broadcast {size - 1}": [[size - 1.0] * 2] * 2,
        **{f"failure of {failing}": ["DataFault", "bad"] if rank == failing else lost for failing in (0, size - 1)},
    }


@pytest.mark.parametrize("size", [2, 4])
def test_threads_keep_the_contract_of_a_group(size: int) -> None:
    assert in_threads(size, use_all) == [expected(rank, size) for rank in range(size)]


def test_processes_keep_the_contract_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one machine speak to each other over its loopback device alone."""
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    device = "lo" if sys.platform == "linux" else "lo0"
    found = in_processes(4, lambda group: [use_all(group), os.environ.get("GLOO_SOCKET_IFNAME")], tmp_path)
    assert found == [[expected(rank, 4), device] for rank in range(4)]


def test_a_single_process_is_a_group() -> None:
    group = ProcessGroup()
    tensor, values = torch.tensor([1.0, 2.0]), {"a": torch.zeros(1)}
    assert (group.rank, group.world_size, group.is_rank_0, group.process) == (0, 1, True, ProcessRank(0, 1, 0, 1))
    assert group.all_gather("x") == ["x"]
    assert group.on_rank_0(lambda: 3) == 3
    assert group.gather(values) is values
    group.all_reduce(tensor)
    group.broadcast(tensor)
    group.barrier()
    with group.independently(), group.communication():
        assert tensor.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="no partner 1"):
        group.send_recv(tensor, 1)


@pytest.mark.parametrize("machines", [1, 2])
def test_the_first_process_of_each_machine_goes_before_the_others(machines: int) -> None:
    order = list[ProcessRank]()

    def work(group: ProcessGroup) -> None:
        with group.local_rank_0_first():
            order.append(group.process)

    in_threads(4, work, machines)
    firsts, others = order[:machines], order[machines:]
    assert sorted(process.rank for process in firsts) == [*range(0, 4, 4 // machines)]
    assert sorted(process.rank for process in others) == [
        process.rank for process in process_ranks(4, machines) if process not in firsts
    ]


@pytest.mark.parametrize("failing", range(4))
def test_an_error_in_turn_ends_all_and_no_one_goes_behind_it(failing: int) -> None:
    """Two machines of two: the second ones have not begun where a first one fails."""
    begun, raised = list[int](), dict[int, str]()

    def work(group: ProcessGroup) -> None:
        try:
            with group.local_rank_0_first():
                begun.append(group.rank)
                if group.rank == failing:
                    raise DataFault("bad")
        except MinitfError as error:
            raised[group.rank] = error.message

    in_threads(4, work, machines=2)
    assert sorted(begun) == ([0, 2] if failing in (0, 2) else [0, 1, 2, 3])
    assert raised == {rank: "bad" if rank == failing else "another process of the run failed" for rank in range(4)}


def test_processes_with_other_values_are_refused_by_rank_and_name() -> None:
    values = [{"recipe": [1, {"a": None}], "data": "x", "software": "1"} for _ in range(4)]
    in_threads(4, lambda group: refuse_different(group, values[group.rank]))
    values[2] |= {"data": "y", "software": "2"}
    values[3] |= {"recipe": [1, {"a": 0}]}

    def work(group: ProcessGroup) -> str:
        with pytest.raises(RunFault) as caught:
            refuse_different(group, values[group.rank])
        return f"{caught.value.message}; {caught.value.hint}"

    line = "rank 2 has another data and software than rank 0; all processes need the same command and files"
    assert in_threads(4, work) == [line] * 4


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 11, 14, 16])
def test_a_tree_adds_as_its_formula_whatever_the_number_of_processes(size: int, n: int) -> None:
    grads = gradients(n)

    def tree(first: int, leaves: int, p: int) -> Tensor | None:
        if leaves == 1:
            return grads[first][p] if first < n else None
        left, right = tree(first, leaves // 2, p), tree(first + leaves // 2, leaves // 2, p)
        return right if left is None else left if right is None else left + right

    for summed in in_threads(size, lambda group: reduced("tree", group, grads)):
        for p, grad in enumerate(summed):
            total = tree(0, 16, p)
            assert (grad is None) == (total is None)
            if grad is not None and total is not None:
                assert torch.equal(grad, total)
                assert torch.equal(grad.signbit(), total.signbit())


def gradients(n: int) -> list[list[Tensor | None]]:
    """Of n micro-batches: m has one for parameter p unless m % 3 == p; one of the numbers is -0.0."""
    draw = torch.Generator().manual_seed(n)
    grads = [[torch.randn(shape, generator=draw) * 10 ** (m % 5) for shape in SHAPES] for m in range(n)]
    for of_micro in grads:
        of_micro[1][0, 0] = -0.0
    return [[None if m % 3 == p else grad for p, grad in enumerate(of_micro)] for m, of_micro in enumerate(grads)]


def reduced(kind: str, group: ProcessGroup, grads: list[list[Tensor | None]]) -> list[Tensor | None]:
    """The sum of the gradients of micro-batches, each of which its process has; in two steps, of which the first is
    other numbers.
    """
    parameters = [torch.zeros(shape, requires_grad=True) for shape in SHAPES]
    reduction: Reduction = REDUCTIONS[kind](parameters, group)
    for factor in (-2.0, 1.0):
        assigned = reduction.assigned(len(grads))
        for micro in assigned:
            for parameter, grad in zip(parameters, grads[micro], strict=True):
                if grad is not None:  # as backward does
                    parameter.grad = factor * grad if parameter.grad is None else parameter.grad + factor * grad
            reduction.add()
        reduction.finish(len(grads))
        result = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
    return result


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_a_sum_is_that_of_all_micro_batches_on_every_process(size: int, n: int) -> None:
    grads = gradients(n)
    for summed in in_threads(size, lambda group: reduced("sum", group, grads)):
        for p, grad in enumerate(summed):
            present = [of_micro[p] for of_micro in grads if of_micro[p] is not None]
            assert (grad is None) == (not present)
            if grad is not None:
                torch.testing.assert_close(grad, torch.stack(present).double().sum(0).float(), rtol=1e-5, atol=1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("size", range(1, 9))
def test_every_micro_batch_belongs_to_one_process_and_order_is_that_of_ranks(reduce: str, size: int) -> None:
    groups = [ProcessGroup(process) for process in process_ranks(size)]
    for n in range(1, 40):
        shares = [list(REDUCTIONS[reduce]((), group).assigned(n)) for group in groups]
        assert [micro for share in shares for micro in share] == [*range(n)]
        if reduce == "tree":  # aligned subtrees, as small as possible
            assert max(map(len, shares)) == min(n, next(2**k for k in range(7) if 2**k * size >= n))
        else:
            assert max(map(len, shares)) - min(map(len, shares)) <= 1
        assert [REDUCTIONS[reduce]((), group).spare(n) for group in groups] == [0] * size
        scatter = [ReduceScatter((), group, ()) for group in groups]  # all call the model equally often
        assert {len(one.assigned(n)) + one.spare(n) for one in scatter} == {
            max(len(one.assigned(n)) for one in scatter)
        }


class Sometimes(nn.Module):
    """The second layer is used for odd numbers only."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))

    def forward(self, number: int) -> Tensor:
        x = torch.arange(2.0) + number
        return sum((layer(x) for layer in self.layers[: 1 + number % 2]), torch.zeros(2)).sum()


def test_overlap_adds_up_in_the_backward_pass_and_once_only(tmp_path: Path) -> None:
    """Also where a step has fewer micro-batches than processes, which then add up after it."""
    steps = (4, 1, 3, 2)

    def work(group: ProcessGroup) -> list[list[float]]:
        torch.manual_seed(0)
        task = Sometimes()
        parameters = [*task.parameters()]
        reduction: Reduction = REDUCTIONS["overlap"](parameters, group)
        forward = reduction.forward(task)
        assert (forward is task) == (group.world_size == 1)
        found = []
        for n in steps:
            for micro in reduction.assigned(n):
                with reduction.micro_batch(micro, n):
                    forward(micro).backward()
                reduction.add()
            reduction.finish(n)
            found.append(
                [
                    0.0 if number is None else number
                    for p in parameters
                    for number in ([None] if p.grad is None else p.grad.flatten().tolist())
                ]
            )
            task.zero_grad()
        return found

    alone = work(ProcessGroup())
    for several in in_processes(2, work, tmp_path):
        for summed, total in zip(several, alone, strict=True):
            assert [x for x in summed if x] == pytest.approx([x for x in total if x])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_each_process_works_on_its_items_and_all_have_the_results_in_order_up_to_an_error(size: int) -> None:
    def work(group: ProcessGroup) -> list[Any]:
        own, found = [], list[Any]()

        def squares(n: int) -> Iterator[int]:
            own.append(n)
            yield n
            if n == 7:
                raise DataFault("no square of 7", hint="leave it out", where=["7"])
            yield n * n

        try:
            found += divided(group, iter(range(5)), squares)
            for one in divided(group, iter(range(5, 12)), squares):
                found.append(one)
        except DataFault as fault:
            found.append((fault.message, fault.hint, fault.where))
        added = list[tuple[int, int]]()
        outputs = DividedOutputs[int](group, lambda n, tensor: added.append((n, int(tensor))))
        for n in range(7):
            if outputs.is_own:
                outputs.append(n, torch.tensor(n * n))
            else:
                outputs.skip(lambda n=n: n)
        outputs.finish()
        return [own, found, added]

    done = in_threads(size, work)
    for rank, (own, found, added) in enumerate(done):
        assert own[: len(range(rank, 5, size))] == [*range(rank, 5, size)]
        assert found == [x for n in range(7) for x in (n, n * n)] + [7, ("no square of 7", "leave it out", ("7",))]
        assert added == ([(n, n * n) for n in range(7)] if rank == 0 else [])
    assert sum(len(own) for own, _, _ in done) < 12


@pytest.mark.parametrize(
    ("batch_size", "even", "largest"), [(12, True, 4), (10, True, 2), (10, False, 3), (2, True, 0)]
)
def test_a_micro_batch_is_small_enough_that_each_process_has_one(batch_size: int, even: bool, largest: int) -> None:
    assert in_threads(3, lambda group: group.largest_micro_batch(batch_size, even)) == [largest] * 3


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_of_several_processes_decides_a_result_is_told(size: int) -> None:
    """The tree of sums is the same for any number; otherwise the number counts, and of several the way, too."""

    def told(**runtime: str) -> list[Any]:
        return in_threads(size, lambda group: Sharding(group).numerics(Runtime.model_validate(runtime)))

    way = {"reduce": "sum", "shard": "full"} if size > 1 else {}
    assert told(reduce="sum", shard="full") == [{"processes": size} | way] * size
    assert told(reduce="tree") == [{}] * size


def test_a_single_process_yields_each_result_before_it_works_on() -> None:
    begun = list[int]()

    def work(n: int) -> Iterator[int]:
        begun.append(n)
        yield n

    results = divided(ProcessGroup(), iter(range(3)), work)
    assert (next(results), begun) == (0, [0])


def test_outputs_are_divided_and_wait_for_one_batch_of_each_process() -> None:
    def work(group: ProcessGroup) -> list[list[int]]:
        added, counts, computed = list[int](), list[int](), list[int]()
        outputs = DividedOutputs[int](group, lambda n, tensor: added.append(n))
        for n in range(5):
            if outputs.is_own:
                computed.append(n)
                outputs.append(n, torch.zeros(1))
            else:
                outputs.skip(lambda n=n: n)
            counts.append(len(added))
        return [counts, computed]

    assert in_threads(2, work) == [[[0, 2, 2, 4, 4], [0, 2, 4]], [[0] * 5, [1, 3]]]


@pytest.mark.parametrize("shared", [(0, 0, 0, 0), (0, 1, 0, 1), (0, 0, 2, 2), (0, 1, 2, 3)])
def test_a_team_is_those_that_see_the_same_folder(
    shared: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = lambda path: path.with_name(threading.current_thread().name)  # noqa: E731
    monkeypatch.setattr(dividing, "temporary_path", marks)  # which differs for processes
    folders = [tmp_path / str(number) for number in shared]
    for folder in {*folders}:
        folder.mkdir()

    def work(group: ProcessGroup) -> list[Any]:
        team = Team.of(group, folders[group.rank])
        led = list[int]()
        results = [team.on_all(lambda: group.rank * 10), team.on_first(lambda: led.append(group.rank) or group.rank)]
        return [[*team.ranks], team.size, team.rank, results, led]

    for rank, (ranks, size, number, results, led) in enumerate(in_threads(4, work)):
        others = [other for other in range(4) if shared[other] == shared[rank]]
        assert (ranks, size, number) == (others, len(others), others.index(rank))
        assert results == [[other * 10 for other in others], others[0]]
        assert led == [rank] * (rank == others[0])
    assert [path for folder in {*folders} for path in folder.iterdir()] == []


def test_each_process_is_by_itself_where_the_folder_cannot_be_written(tmp_path: Path) -> None:
    def work(group: ProcessGroup) -> list[int]:
        return [*Team.of(group, tmp_path / "missing" / "folder").ranks]

    assert in_threads(3, work) == [[0], [1], [2]]


@pytest.mark.parametrize("failing", [(2,), (1, 2)])
def test_an_error_of_a_member_is_raised_by_all_processes_that_of_the_lowest_rank(failing: tuple[int, ...]) -> None:
    """Also by those of other teams, of which each is at the same place."""
    errors = {rank: DataFault(f"bad {rank}", hint="mend it", where=[f"{rank}.txt"]) for rank in range(4)}

    def work(group: ProcessGroup) -> list[Any]:
        team = Team(group, [0, 1] if group.rank < 2 else [2, 3])

        def own() -> int:
            if group.rank in failing:
                raise errors[group.rank]
            return group.rank

        with pytest.raises(DataFault) as caught:
            team.on_all(own)
        assert (caught.value is errors[group.rank]) == (group.rank == failing[0])
        return [caught.value.message, caught.value.hint, caught.value.where]

    assert in_threads(4, work) == [[f"bad {failing[0]}", "mend it", (f"{failing[0]}.txt",)]] * 4


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_shares_are_consecutive_and_of_similar_size(size: int) -> None:
    sizes = [5, 1, 1, 8, 3, 2, 2, 9, 4, 1, 6, 6, 0]
    teams = [Team(ProcessGroup(process), range(size)) for process in process_ranks(size)]
    shares = [[*team.assigned([*enumerate(sizes)], lambda one: one[1])] for team in teams]
    assert [one for share in shares for one in share] == [*enumerate(sizes)]
    assert 0 <= sum(sizes) / size - teams[0].average(sum(sizes)) < 1
    for share in shares:
        assert abs(sum(n for _, n in share) - sum(sizes) / size) <= max(sizes)


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ([0, 0, 0], [3, 0]),
        ([1], [0, 1]),
        ([4, 4], [1, 1]),
        ([1, 9], [1, 1]),
        ([2, 1, 1, 6], [3, 1]),
        ([3, 3, 3], [1, 2]),
    ],
)
def test_an_item_belongs_to_the_process_in_whose_share_its_middle_lies(sizes: list[int], shares: list[int]) -> None:
    teams = [Team(ProcessGroup(process), range(2)) for process in process_ranks(2)]
    assert [len(team.assigned(sizes, lambda size: size)) for team in teams] == shares


def test_a_lost_process_ends_the_threads_that_wait_for_it() -> None:
    """Else a test of threads would hang where one fails."""

    def work(group: ProcessGroup) -> None:
        if group.rank == 1:
            raise DataFault("bad")
        with pytest.raises(ProcessLost):
            group.all_gather(1)

    with pytest.raises(DataFault, match="bad"):
        in_threads(3, work)
