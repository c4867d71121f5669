"""What a list lets guests reach, and what the names on it can't be made to lead to.

Which addresses are public is tested here for whoever asks: the relay and operations.
"""

import pytest

from cellblock.host.services.addresses import (
    MAX_ADDRESSES,
    Allowlist,
    is_public,
    read,
    refusal,
)

PUBLIC = [
    "93.184.216.34",
    "8.8.8.8",
    "::ffff:8.8.8.8",
    "2606:2800:220:1::1",
    "64:ff9b::808:808",  # NAT64 of a public address
]
#: What is this machine's, the network's own, a cloud's, nobody's, or many hosts'.
NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",  # metadata (Alibaba)
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",  # metadata (Azure)
    "169.254.169.254",  # metadata (nearly everybody)
    "172.16.0.1",
    "192.0.0.192",  # metadata (Oracle)
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",  # NAT64 of a metadata address
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "2002:808:808::1",  # 6to4: whose relay that is nobody knows
    "2002:7f00:1::1",  # 6to4 of loopback
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata (Amazon)
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_of_the_internets_is_public(text):
    assert is_public(read(text))
    assert not refusal([text], private=False)


def test_an_address_of_this_machine_or_network_is_not_and_no_operation_asks_it():
    for text in NOT_PUBLIC:
        assert not is_public(read(text)), text
        assert refusal([text], private=False), text
        # One is enough, wherever it stands.
        assert refusal(["8.8.8.8", text], private=False), text


#: Where clouds give out credentials.
METADATA = [
    "100.100.100.200",
    "168.63.129.16",
    "169.254.169.254",
    "192.0.0.192",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
]


def test_where_private_addresses_may_be_asked_those_of_credentials_may_not():
    for text in METADATA:
        assert "a cloud gives out credentials" in refusal([text], private=True), text
        assert "a cloud gives out credentials" in refusal(["10.0.0.1", text], private=True), text
    for text in ["10.0.0.1", "127.0.0.1", "100.64.0.1", "192.168.0.1", "::1", "fd00::1"]:
        assert refusal([text], private=True) == "", text  # positive control
    assert refusal(["224.0.0.1"], private=True) == "it has no public address"


def reaches(allowlist, text, port):
    return allowlist.reaches(read(text), port)


def test_a_listed_address_is_reached_at_its_port_and_nothing_else_is():
    allowlist = Allowlist(["10.0.0.5:5432", "[2001:db8::1]:443"])
    assert reaches(allowlist, "10.0.0.5", 5432)
    assert reaches(allowlist, "::ffff:10.0.0.5", 5432)
    assert reaches(allowlist, "2001:db8:0::1", 443)
    for text, port in (("10.0.0.5", 5433), ("10.0.0.6", 5432), ("2001:db8::1", 5432)):
        assert not reaches(allowlist, text, port)


def test_a_listed_name_is_reached_where_it_was_found_and_at_no_other_port():
    allowlist = Allowlist(["example.org:443", "example.org:80", "other.example:22"])
    assert not reaches(allowlist, "93.184.216.34", 443)
    assert allowlist.found("example.org", ["93.184.216.34"]) == (["93.184.216.34"], "")
    assert reaches(allowlist, "93.184.216.34", 443)
    assert reaches(allowlist, "93.184.216.34", 80)
    assert not reaches(allowlist, "93.184.216.34", 22)
    assert not reaches(allowlist, "93.184.216.35", 443)
    assert allowlist.names(read("93.184.216.34"), 443) == ["example.org"]


def test_other_names_are_not_to_be_looked_up():
    allowlist = Allowlist(["example.org:443", "10.0.0.5:5432"])
    assert allowlist.knows("example.org")
    for name in ("www.example.org", "org", "example.org.", "EXAMPLE.org", "10.0.0.5", "localhost"):
        assert not allowlist.knows(name)
    assert not allowlist.knows("")


def test_a_name_that_is_made_to_lead_inside_leads_nowhere():
    for text in NOT_PUBLIC:
        allowlist = Allowlist(["rebound.example:80"])
        good, bad = allowlist.found("rebound.example", ["93.184.216.34", text])
        assert good == ["93.184.216.34"], text
        assert read(bad) == read(text), text
        assert not reaches(allowlist, text, 80), text


def test_a_name_leads_inside_where_that_address_is_listed_at_the_same_port():
    allowlist = Allowlist(["db.example:5432", "10.0.0.5:5432", "10.0.0.5:22", "10.0.0.6:22"])
    assert allowlist.found("db.example", ["10.0.0.5", "10.0.0.6"]) == (["10.0.0.5"], "10.0.0.6")
    assert reaches(allowlist, "10.0.0.5", 5432)
    assert not reaches(allowlist, "10.0.0.6", 5432)


def test_localhost_is_this_machine_whatever_a_name_server_says():
    allowlist = Allowlist(["localhost:8080"])
    assert reaches(allowlist, "127.0.0.1", 8080)
    assert reaches(allowlist, "::1", 8080)
    assert not reaches(allowlist, "127.0.0.2", 8080)
    assert not reaches(allowlist, "127.0.0.1", 80)


def test_of_a_name_that_moves_the_latest_addresses_count():
    allowlist = Allowlist(["example.org:443"])
    for last in range(MAX_ADDRESSES + 1):
        allowlist.found("example.org", [f"8.8.8.{last}"])
    assert not reaches(allowlist, "8.8.8.0", 443)
    assert reaches(allowlist, "8.8.8.1", 443)
    assert reaches(allowlist, f"8.8.8.{MAX_ADDRESSES}", 443)


def test_what_is_no_address_is_none():
    allowlist = Allowlist(["example.org:443"])
    assert allowlist.found("example.org", ["", "example.org", "127.1", "1"]) == ([], "")
    assert read("127.1") is read("0x7f000001") is read("example.org") is None
