"""Entries of network_access: what each means, and what is refused because it could mean more."""

import ipaddress

import pytest

from cellblock.policy.network import Address, AddressError, parse_address

GOOD = {
    "pypi.example:443": Address("pypi.example", 443, None),
    "Files.PyPI.example:443": Address("files.pypi.example", 443, None),
    "db:5432": Address("db", 5432, None),
    "_srv.a-b.example:1": Address("_srv.a-b.example", 1, None),
    "localhost:8080": Address("localhost", 8080, None),
    "10.0.0.5:5432": Address("10.0.0.5", 5432, ipaddress.ip_address("10.0.0.5")),
    "[2001:DB8::0001]:65535": Address("2001:db8::1", 65535, ipaddress.ip_address("2001:db8::1")),
    "[::1]:80": Address("::1", 80, ipaddress.ip_address("::1")),
    "4.example4:80": Address("4.example4", 80, None),
}
#: What is refused, by what is said of it and what is to be written instead.
BAD = {
    ("not a host and port", "Write host:port, as in example.org:443."): [
        "",
        "example.org",
        ":443",
        "example.org:0",
        "example.org:65536",
        "example.org:0443",
        "example.org:+443",
        "example.org:\uff14\uff14\uff13",
        "example.org:443\n",
        "example.org:1-1024",
        "example..org:443",
        "example.org.:443",
        "-example.org:443",
        "user@example.org:443",
        "example.org\0:443",
        f"{'a' * 64}.org:443",
        f"{'a.' * 127}org:443",
        "[10.0.0.5]:80",
    ],
    (
        "not a host and port",
        "Write host:port, without a scheme, a path or a range: example.org:443.",
    ): ["https://example.org:443", "10.0.0.0/8:443"],
    ("not a host and port", "Write an IPv6 address in brackets: [2001:db8::1]:443."): [
        "2001:db8::1:443"
    ],
    ("a wildcard", "List each host: others may run hosts that it would let in."): [
        "*.example.com:443",
        "example.com:*",
    ],
    ("not an address", "Write all of it: 127.0.0.1:443, [2001:db8::1]:443."): [
        "127.1:80",
        "2130706433:80",
        "0x7f.1:80",
        "0x7f000001:80",
        "0177.0.0.1:80",
        "[1:2]:80",
    ],
    ("not an address of one host", "Give one host's address."): [
        "[fe80::1%eth0]:80",
        "224.0.0.1:80",
        "[ff02::1]:80",
        "255.255.255.255:80",
    ],
    ("not an address of one host", "For this machine write 127.0.0.1:80."): [
        "0.0.0.0:80",
        "[::]:80",
    ],
    ("an IPv4 address in disguise", "Write 10.0.0.1:80."): ["[::ffff:10.0.0.1]:80"],
    ("not a name as DNS has it", "Write xn--bcher-kva.example:443."): ["bücher.example:443"],
    ("not a name as DNS has it", "Write example.org:443."): ["\uff45xample.org:443"],
}


@pytest.mark.parametrize("entry", GOOD)
def test_an_entry_names_one_host_and_one_port_and_is_written_as_it_is_read(entry):
    assert parse_address(entry) == parse_address(str(parse_address(entry))) == GOOD[entry]


@pytest.mark.parametrize(
    ("entry", "said"), [(entry, said) for said, entries in BAD.items() for entry in entries]
)
def test_what_could_be_read_otherwise_is_refused_with_what_to_write(entry, said):
    with pytest.raises(AddressError) as caught:
        parse_address(entry)
    assert (caught.value.message, caught.value.remedy) == said
