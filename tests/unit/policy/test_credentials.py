"""``[credentials.NAME]``: a key is sent to whom it names, or the policy is refused with a remedy."""

import json
from pathlib import Path

import pytest

pytest.importorskip("httpcore")

from cellblock.errors import PolicyError, WideningError
from cellblock.policy import network
from cellblock.policy.load import load
from cellblock.policy.model import Policy, flat_fields
from cellblock.policy.narrowing import narrow, wider
from cellblock.policy.paths import Places
from cellblock.render.policy_card import Change, allowances, policy_table

GIVEN = {
    "hosts": '["api.example.org:443"]',
    "header": '"Authorization"',
    "prefix": '"Bearer "',
    "value": '"env:API_KEY"',
}
HTTP = '[ops.http]\nhosts = ["api.example.org", "http://127.0.0.1:8000", "http://b.org:8000"]'


def text(name="API", **changed):
    rows = [f"{key} = {value}" for key, value in (GIVEN | changed).items() if value]
    return "\n".join([f"[credentials.{name}]", *rows])


@pytest.fixture
def operator(tmp_path):
    def write(*tables, head="", http=HTTP):
        file = tmp_path / "team.toml"
        file.write_text("\n".join([head, http, *(tables or [text()])]))
        return load(str(file), project=tmp_path, allow_unsafe=False)

    return write


@pytest.fixture
def places(tmp_path):
    return Places("a cell", tmp_path, tmp_path, tmp_path / "scratch")


def test_a_credential_is_granted_as_it_is_written(operator):
    one = operator().credentials["API"]
    assert (one.hosts, one.header, one.prefix, one.value) == (
        ("api.example.org:443",),
        "Authorization",
        "Bearer ",
        "env:API_KEY",
    )
    assert not Policy().credentials
    assert operator().digest() != operator(text(prefix='"Token "')).digest()


def test_a_key_goes_by_https_but_to_loopback_by_its_very_name():
    assert network.origins_of("API.example.org:443") == (("https", "api.example.org", 443),)
    for entry in ("127.0.0.1:80", "[::1]:80", "localhost:80"):
        assert {scheme for scheme, _, _ in network.origins_of(entry)} == {"http", "https"}
    assert network.origins_of("[2001:DB8:0::1]:443") == (("https", "[2001:db8::1]", 443),)
    for entry in ("localhost.test:80", "10.0.0.1:80", "a.localhost:80"):
        assert {scheme for scheme, _, _ in network.origins_of(entry)} == {"https"}


#: What is wrong, by the table and what is said.
WRONG = {
    text(hosts="[]"): "credentials.API.hosts: none is named",
    text(hosts='["api.example.org"]'): "credentials.API.hosts: not a host and port",
    text(hosts='["*.example.org:443"]'): "credentials.API.hosts: a wildcard",
    text(hosts='["https://api.example.org"]'): "credentials.API.hosts: not a host and port",
    text(hosts='["other.org:443"]'): "credentials.API.hosts: ops.http does not ask it over https",
    text(hosts='["b.org:8000"]'): "credentials.API.hosts: ops.http does not ask it over https",
    text(header='"Host"'): "credentials.API.header: a header that holds no key",
    text(header='"Transfer-Encoding"'): "credentials.API.header: a header that holds no key",
    text(header='"User-Agent"'): "credentials.API.header: a header that holds no key",
    text(header='"X: y\\r\\nZ"'): "credentials.API.header: not the name of a header",
    text(header='""'): "credentials.API.header: not the name of a header",
    text(prefix='"a\\r\\nX: y"'): "credentials.API.prefix: can't stand in a header",
    text(prefix='"ü"'): "credentials.API.prefix: can't stand in a header",
    text(value='"sk-secret"'): "credentials.API.value: it does not say where the key is",
    text(value='"env:sk-secret"'): "credentials.API.value: it does not say where the key is",
    text(value='"env:"'): "credentials.API.value: it does not say where the key is",
    text(value='"file:"'): "credentials.API.value: it does not say where the key is",
    text(value='"https:sk-secret"'): "credentials.API.value: it does not say where the key is",
    text(value=""): "credentials.API.value: it does not say where the key is",
    text(value='["sk-secret"]'): "credentials.API.value: wrong value",
    text() + '\ntoken = "sk-secret"': "credentials.API.token: no such key",
    '[credentials]\nAPI = "sk-secret"': "credentials.API: wrong value",
    'credentials = "sk-secret"': "credentials: wrong value",
    '[add]\ncredentials = ["sk-secret"]': "add.credentials: can't be added",
    text(name='"A B"'): "credentials: not the name of a credential",
    text() + "\n" + text(name="B"): "credentials.B.header: credential API has this header",
    text(header='"X-Key"') + "\n" + text(name="B", header='"x_key"'): "credentials.B.header: cred",
}


@pytest.mark.parametrize(("wrong", "said"), WRONG.items(), ids=range(len(WRONG)))
def test_one_error_names_the_key_and_shows_nothing_that_may_be_the_secret(operator, wrong, said):
    given = {"head": wrong} if wrong.startswith("credentials =") else {}
    with pytest.raises(PolicyError) as refused:
        operator("" if given else wrong, **given)
    message = str(refused.value)
    assert said in message
    assert refused.value.remedy
    assert "sk-secret" not in message + repr(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1:80", "localhost:80", "[::1]:80"])
def test_a_key_for_this_machine_goes_with_no_network_in_which_cells_could_take_it(operator, host):
    http = f'[ops.http]\nhosts = ["http://{host}", "https://{host}"]\nallow_private = true'
    table = text(hosts=f'["{host}"]')
    operator(table, http=http)
    with pytest.raises(PolicyError, match="cells could listen there, and be sent the key"):
        operator(table, http=http, head="network_access = true")


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8050", "127.0.0.1:8050"),
        ("localhost:8050", "hub.example.org"),
        ("hub.example.org:443", "Hub.example.org"),
    ],
)
def test_no_key_is_sent_to_where_cells_serve_pages(operator, host, served):
    http = f'[ops.http]\nhosts = ["http://{host}", "https://{host}"]\nallow_private = true'
    ports = f'ports = [8050]\nport_hosts = ["{served}"]'
    table = text(hosts=f'["{host}"]')
    operator(table, http=http, head="ports = [8050]")
    with pytest.raises(PolicyError, match="cells could serve there by port_hosts"):
        operator(table, http=http, head=ports)


def test_without_ops_http_nothing_sends_a_key(operator):
    with pytest.raises(PolicyError, match=r"nothing sends it.*Grant \[ops.http\]"):
        operator(http="")


def test_cells_are_not_passed_the_variable_that_a_key_is_in(operator):
    with pytest.raises(PolicyError, match=r"cells would be given the key.*env_var_access"):
        operator(head='env_var_access = ["API_KEY"]')


def test_a_file_is_one_path_whatever_links_lead_there(operator, tmp_path):
    (tmp_path / "real").write_text("x")
    (tmp_path / "link").symlink_to("real")
    for written in ("link", str(tmp_path / "link"), "./sub/../link"):
        policy = operator(text(value=f'"file:{written}"'))
        assert policy.secret_files() == {"credentials.API.value": f"{tmp_path}/real"}


def test_a_policy_names_what_holds_secrets(operator):
    llm = '[llm]\nbase_url = "https://a.org/v1"\nmodels = ["m"]\nkey_env = "LLM_KEY"'
    server = '[tools.mcp.wiki]\nurl = "https://w.org"\ntools = ["*"]\ntoken_env = "WIKI"'
    assert operator(text(), llm, server).secret_variables() == {
        "LLM_KEY": "the key of language models",
        "WIKI": "the token of wiki",
        "API_KEY": "the credential API",
    }


# --- narrower ---------------------------------------------------------------------------------


TWO = text() + "\n" + text(name="B", header='"X-B"', value='"env:B_KEY"')


def test_a_narrowing_takes_credentials_away(operator, places):
    policy = operator(TWO)
    for changes, left in (
        ({"credentials": []}, []),
        ({"credentials": {}}, []),
        ({"credentials": ["B"]}, ["B"]),
        ({"credentials": ["API", "B"]}, ["API", "B"]),
        ({"credentials": {"B": policy.as_dict()["credentials"]["B"]}}, ["B"]),
    ):
        narrowed = narrow(policy, json.loads(json.dumps(changes)), places=places)
        assert list(narrowed.credentials) == left
        assert all(policy.credentials[name] == one for name, one in narrowed.credentials.items())


def test_and_adds_none_and_changes_none(operator, places):
    policy = narrow(operator(TWO), {"credentials": ["API"]}, places=places)
    mine = policy.as_dict()["credentials"]["API"]
    for changes in (
        ["B"],
        ["API", "C"],
        ["api"],
        [3],
        {"C": mine},
        {"API": mine | {"hosts": ["127.0.0.1:8000"]}},
        {"API": mine | {"hosts": ["api.example.org:443", "127.0.0.1:8000"]}},
        {"API": mine | {"header": "X-Mine"}},
        {"API": mine | {"prefix": "Mine "}},
        {"API": mine | {"value": "env:OTHER"}},
        {"API": mine | {"value": "file:/etc/passwd"}},
    ):
        with pytest.raises(WideningError):
            narrow(policy, {"credentials": json.loads(json.dumps(changes))}, places=places)
    with pytest.raises(WideningError):
        narrow(policy, {"add": {"credentials": ["B"]}}, places=places)


def test_a_diff_tells_which_of_two_policies_sends_more(operator):
    more, less = operator(TWO), operator()
    assert wider("credentials", less, more) == "'B' is not among what the policy has"
    assert not wider("credentials", more, less)
    assert "credentials.B.hosts" in flat_fields(more.as_dict())


# --- shown ------------------------------------------------------------------------------------


def test_it_is_said_who_is_sent_which_key_and_that_cells_do_not_see_it(operator):
    said = "requests to api.example.org carry your key API (cells do not see it)"
    policy = operator()
    card = policy_table(policy.as_dict(), (), ())["text/plain"]
    assert said in " ".join(card.split())
    assert said in allowances(policy.as_dict(), (), None)
    assert "credentials" not in policy_table(Policy().as_dict(), (), ())["text/plain"]
    both = text(hosts='["api.example.org:443", "127.0.0.1:8000"]')
    assert "requests to api.example.org and 127.0.0.1:8000 carry" in allowances(
        operator(both).as_dict(), (), None
    )


def test_what_a_narrowing_took_away_is_said(operator, places):
    policy = operator()
    narrowed = narrow(policy, {"credentials": []}, places=places)
    change = Change("credentials", policy.credentials, narrowed.credentials)
    assert change.words == (
        "requests to api.example.org carry your key API (cells do not see it) → none"
    )
    card = policy_table(narrowed.as_dict(), (), (), {"credentials": policy.credentials})
    assert "none (narrowed from requests to api.example.org" in " ".join(card["text/plain"].split())


def test_a_page_has_an_example_that_is_a_policy(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "network.md").read_text()
    section = page.partition("## Keys that cells use and never see")[2]
    example = section.partition("```toml\n")[2].partition("```")[0]
    file = tmp_path / "page.toml"
    file.write_text(example)
    assert load(str(file), project=tmp_path, allow_unsafe=False).credentials
