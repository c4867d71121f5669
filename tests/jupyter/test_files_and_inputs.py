"""Files that cells leave are links under them; what a kernel is given is there to be read."""

import pytest

from support import reading
from support.kernels import Kernel, argv_for

CARD = "application/vnd.cellblock.artifacts+json"
WRITES = 'extends = "unsafe"\nartifact_export_paths = ["*.csv"]\n'


def cards(messages):
    return [one["data"] for one in reading.of(messages, "display_data") if CARD in one["data"]]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    file = tmp_path_factory.mktemp("given") / "in.json"
    file.write_text('{"city": "Rome", "days": [1, 2]}')
    return file


@pytest.mark.quick
def test_a_file_that_a_cell_wrote_is_a_link_under_it_and_on_record(start, world, records):
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
    (record,) = records(world, "artifact")
    assert (record["name"], record["bytes"], len(record["sha256"])) == ("a b.csv", 4, 64)


def test_a_name_of_a_cells_choosing_is_text_on_the_card(start, world):
    kernel = start(world.policy(WRITES), "--allow-unsafe", world=world)
    (card,) = cards(kernel.run("open('<img src=x onerror=alert(1)>\\u202e.csv', 'w').close()")[1])
    assert card[CARD]["artifacts"][0]["path"] == "artifacts/_img src=x onerror=alert(1)__.csv"
    assert "<img" not in card["text/html"]


def test_what_a_kernel_is_given_is_there_to_be_read_in_mode_safe(start, inputs):
    kernel = start(argv=argv_for("safe", "--input", str(inputs)))
    code = "inputs['days'].append(3); inputs['city'], inputs['days']"
    assert reading.result(kernel.run(code)[1]) == "('Rome', [1, 2])"
    assert kernel.run("inputs['city'] = 1")[0]["ename"] == "TypeError"


def test_without_any_there_is_an_empty_mapping(safe):
    assert reading.result(safe.run("dict(inputs)")[1]) == "{}"


def test_inputs_that_are_none_are_said_on_every_cell_and_nothing_runs(world, tmp_path):
    (tmp_path / "in.json").write_text("[]")
    argv = argv_for("safe", "--input", str(tmp_path / "in.json"))
    with Kernel(argv, world=world).wait_heard() as kernel:
        for _ in range(2):
            content, messages = kernel.run("print('ran')")
            assert content["status"] == "error"
            assert "not an object" in "\n".join(content["traceback"])
            assert "these inputs" in content["traceback"][0]
            assert reading.stream(messages) == ""
