import pytest

from cellblock.batch import check
from cellblock.batch.verdict import CheckTask


class InProcess:
    """Judges in this process. What workers do is tested in ``test_check_workers.py``."""

    def __init__(self, options, _most):
        self._context = check.judge_context(options)

    def judge(self, items):
        for item in items:
            task = CheckTask(item.file.kind, len(item.content), item.path)
            yield item, check.judge_task(item.content, task, self._context)

    def close(self):
        pass


@pytest.fixture
def judged_in_process(monkeypatch):
    monkeypatch.setattr(check, "CheckWorkers", InProcess)
