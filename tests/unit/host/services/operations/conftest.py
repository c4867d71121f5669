"""What a policy grants, as whoever runs operations has it."""

import pytest

from cellblock.host.services.operations import catalog
from cellblock.policy import operations as tables


@pytest.fixture
def everything(tmp_path):
    """Return settings that grant some of each operation, beneath a folder ``lab``."""
    (tmp_path / "lab/keys").mkdir(parents=True)
    roots = (str(tmp_path / "lab"),)
    given = tables.Http(hosts=("*", "10.0.0.1"), paths=("/v1/",))
    http = {name: getattr(given, name) for name in catalog.Http.__struct_fields__}
    return catalog.OperationGrants(
        project=str(tmp_path / "lab"),
        denied=(str(tmp_path / "lab/keys"),),
        read_file=catalog.ReadFile(roots=roots, max_bytes=10),
        write_file=catalog.WriteFile(roots=roots, max_bytes=10, replace=True),
        list_dir=catalog.ListDir(roots=roots, max_entries=10),
        http=catalog.Http(**http),
        install=catalog.Install(
            index="http://127.0.0.1:9/simple",
            allow=("Some-Package<2",),
            max_bytes=10**6,
            timeout=1.0,
            folder=str(tmp_path / "packages"),
        ),
    )
