"""What a tool's exception says crosses to a cell without the paths of the host."""

import time

import pytest

from cellblock.host.services.tools.path_free import without_paths
from cellblock.host.services.tools.registry import encode_error

PATHS = [
    ("cannot read:/home/alice/secrets.toml", "cannot read:<path>"),
    ("cannot read /home/alice/secrets.toml.", "cannot read <path>."),
    ("ERROR:/srv/app/x.py:12", "ERROR:<path>:12"),
    ("/srv/app/x.py:12:7: bad", "<path>:12:7: bad"),
    ("/srv/2026-01-01T10:30:00/x.log is gone", "<path> is gone"),
    ("sqlite:////srv/app/db.sqlite", "sqlite:<path>"),
    ("unix:///run/user/1000/bus", "unix:<path>"),
    ("file:///home/alice/a%20b", "<path>"),
    ("file://localhost/home/alice/x", "<path>"),
    ("in /root", "in <path>"),
    ("in /srv, and in (/opt)", "in <path>, and in (<path>)"),
    ("no '/home/alice/My Documents/passwords.txt' here", "no '<path>' here"),
    ('no "/home/o\'brien/My Documents/x" here', 'no "<path>" here'),
    ("'/home/alice/My Documents/pass", "'<path>"),
    ("no /home/alice/My Documents/passwords.txt here", "no <path> here"),
    ("/home/a/data(1)/x", "<path>"),
    ("/home/o'brien/x", "<path>"),
    ("/home/a/x,y;z&w=1.txt", "<path>"),
    ("PATH=/usr/bin:/usr/local/bin", "PATH=<path>"),
    ("{'/home/a': '/home/b'}", "{'<path>': '<path>'}"),
    ("['/a/b','/c']", "['<path>','<path>']"),
    ("loading.../home/alice/x", "loading...<path>"),
    ("b'failed\\n/home/alice/x'", "b'failed\\n<path>'"),
    ("\x1b[31m/home/alice/x", "<path>"),
    ("/home/älice/ä", "<path>"),
    ("https://host/x?file=/home/alice/x", "https://host/x?file=<path>"),
    ("https://host//home/alice/x", "https://host/<path>"),
    ("https:///home/alice/x", "https:<path>"),
    ("http://:/home/alice/x", "http:<path>"),
    ("GET /home/alice/x", "GET <path>"),
    ("could not delete /data/customers/x.csv", "could not delete <path>"),
    ("Options /mnt2/x", "Options <path>"),
    ("cannot get /somewhere/secret.txt", "cannot get <path>"),
    ("PATCH /Users/alice/x", "PATCH <path>"),
    ("PUT /workspaces/lab/x", "PUT <path>"),
]
OTHERS = [
    "https://host/path",
    "see https://user@host.example:8443/a/b(1)/c, please",
    "http://[::1]:80/v1/items?page=2#top",
    "s3://bucket/key",
    "GET /v1/items: 404",
    "1/2",
    "and/or",
    "text/plain, */*",
    "data/in/a.csv",
    "./a/b and ../a/b and ../../c",
    "a / b // c",
    "<b>x</b>",
    "/",
]


def test_no_path_of_the_host_crosses():
    for said, crosses in PATHS:
        assert encode_error(ValueError(said)).message == crosses, (said, crosses)


@pytest.mark.parametrize("said", OTHERS)
def test_what_is_no_path_of_the_host_stays(said):
    assert without_paths(said) == said


PARTS = r"""/,/(,'/,'/a,/'a,"/,/a b, a/,/a:1,:1,[::,https://,https://a,file://,</,./,\n/,GET /"""


def test_a_message_takes_no_longer_than_it_is_long():
    for part in ["\x1b[", *PARTS.split(",")]:
        before = time.process_time()
        for said in (part * 4_000, part * 4_000 + "!", f"/{part * 4_000}", f"'/{part * 4_000}"):
            assert len(without_paths(said)) <= 2_000, part
        assert time.process_time() - before < 0.2, part
