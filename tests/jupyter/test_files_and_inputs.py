"""Files that cells leave are links under them; what a kernel is given is there to be read."""

import json

import pytest

from support.kernels import Kernel, argv_for

CARD = "application/vnd.cellblock.artifacts+json"
WRITES = 'extends = "unsafe"\nartifact_export_paths = ["*.csv"]\n'


def cards(messages):
    found = [m["content"]["data"] for m in messages if m["msg_type"] == "display_data"]
    return [data for data in found if CARD in data]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    file = tmp_path_factory.mktemp("given") / "in.json"
    file.write_text('{"city": "Rome", "days": [1, 2]}')
    return file


def test_a_file_that_a_cell_wrote_is_a_link_under_it_and_on_record(start, world):
    kernel = start(world.policy(WRITES), "--allow-unsafe", world=world)
    mid = kernel.execute_send("open('a b.csv', 'w').write('x,y\\n')")
    reply = kernel.reply(mid)
    (card,) = cards(kernel.until_idle(mid))
    assert card["text/plain"] == ("1 file copied out\n  artifacts/a b.csv  4 bytes  text/csv")
    assert '<a href="./artifacts/a%20b.csv">artifacts/a b.csv</a>' in card["text/html"]
    assert (world.work / "artifacts" / "a b.csv").read_text() == "x,y\n"
    (told,) = reply["metadata"]["cellblock"]["artifacts"]
    assert (told["name"], told["content_type"]) == ("a b.csv", "text/csv")
    assert not cards(kernel.run("1")[1])
    kernel.end()
    logs = (world.home / ".cache/cellblock/audit").glob("*.jsonl")
    records = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    (record,) = [one for one in records if one["kind"] == "artifact"]
    assert (record["name"], record["bytes"], len(record["sha256"])) == ("a b.csv", 4, 64)


def test_a_name_of_a_cells_choosing_is_text_on_the_card(start, world):
    kernel = start(world.policy(WRITES), "--allow-unsafe", world=world)
    (card,) = cards(kernel.run("open('<img src=x onerror=alert(1)>\\u202e.csv', 'w').close()")[1])
    assert card[CARD]["artifacts"][0]["path"] == "artifacts/_img src=x onerror=alert(1)__.csv"
    assert "<img" not in card["text/html"]


def test_what_a_kernel_is_given_is_there_to_be_read_in_mode_safe(start, inputs):
    kernel = start(argv=argv_for("safe", "--input", str(inputs)))
    content, messages = kernel.run("inputs['days'].append(3); inputs['city'], inputs['days']")
    assert content["status"] == "ok"
    (result,) = [m for m in messages if m["msg_type"] == "execute_result"]
    assert result["content"]["data"]["text/plain"] == "('Rome', [1, 2])"
    assert kernel.run("inputs['city'] = 1")[0]["ename"] == "TypeError"


def test_without_any_there_is_an_empty_mapping(safe):
    (result,) = [m for m in safe.run("dict(inputs)")[1] if m["msg_type"] == "execute_result"]
    assert result["content"]["data"]["text/plain"] == "{}"


def test_inputs_that_are_none_are_said_on_every_cell_and_nothing_runs(kernel_with, tmp_path):
    (tmp_path / "in.json").write_text("[]")
    kernel = kernel_with(tmp_path / "in.json")
    for _ in range(2):
        content, messages = kernel.run("print('ran')")
        assert content["status"] == "error"
        assert "not an object" in "\n".join(content["traceback"])
        assert "these inputs" in content["traceback"][0]
        assert not [m for m in messages if m["msg_type"] == "stream"]


@pytest.fixture
def kernel_with(world):
    started = []

    def start_with(file):
        kernel = Kernel(argv_for("safe", "--input", str(file)), world=world)
        started.append(kernel)
        return kernel.wait_heard()

    yield start_with
    for kernel in started:
        kernel.close()
