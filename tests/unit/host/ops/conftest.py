"""What a policy grants, as whoever runs operations has it."""

import pytest

from cellblock.host.ops import settings
from cellblock.policy import operations as tables


@pytest.fixture
def everything(tmp_path):
    """Return settings that grant some of each operation, beneath a folder ``lab``."""
    (tmp_path / "lab/keys").mkdir(parents=True)
    roots = (str(tmp_path / "lab"),)
    given = tables.Http(hosts=("*", "10.0.0.1"), paths=("/v1/",))
    http = {name: getattr(given, name) for name in settings.Http.__struct_fields__}
    return settings.Settings(
        project=str(tmp_path / "lab"),
        denied=(str(tmp_path / "lab/keys"),),
        read_file=settings.ReadFile(roots=roots, max_bytes=10),
        write_file=settings.WriteFile(roots=roots, max_bytes=10, replace=True),
        list_dir=settings.ListDir(roots=roots, max_entries=10),
        http=settings.Http(**http),
        install=settings.Install(
            index="http://127.0.0.1:9/simple",
            allow=("Some-Package<2",),
            max_bytes=10**6,
            timeout=1.0,
            folder=str(tmp_path / "packages"),
        ),
    )
