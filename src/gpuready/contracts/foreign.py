"""What a contract file may do: name what a framework needs, and tune it. Only gpuready's own contracts do more.

A file may be a stranger's. Of its variables only those count that neither load code nor redirect (``settable`` in
catalog/roles.toml), or that the user names; its commands are left to a person; a known name keeps its distribution.
"""

import os
import shlex
from collections.abc import Collection

from gpuready.catalog import variables
from gpuready.catalog.packages import canonical_package_name, list_packages
from gpuready.contracts import (
    BadContract,
    Contract,
    distribution_name,
    framework_by_name,
    has_contract,
    list_frameworks,
    list_shipped_contracts,
    read_contract_file,
)
from gpuready.contracts.contract_file import parse_contract_text
from gpuready.model import ContractVariable, FixStep


def read_foreign_contract(path: str, allowed: Collection[str] = ()) -> Contract:
    """Read a contract file, and take of it what a stranger may say; ``allowed``: variables that the user agreed to by name."""
    contract = read_contract_file(path)
    if os.path.abspath(path).startswith(os.path.dirname(os.path.abspath(__file__)) + os.sep):
        return contract
    framework = framework_by_name(canonical_package_name(contract.framework))
    _check_distribution(contract, framework, path)
    return _take_what_is_allowed(contract, path, framework, allowed)


def read_packaged_contract(distribution: str, text: str, path: str, allowed: Collection[str] = ()) -> Contract:
    """Read the requirements that a distribution ships for itself, as of any stranger; they serve no other distribution."""
    contract = Contract.from_json(parse_contract_text(text, path))
    own = contract.distribution or contract.framework
    if canonical_package_name(own) != distribution or has_contract(framework_by_name(contract.framework)):
        raise BadContract(
            f"{path} is shipped by {distribution} and is for {own}: a package's own requirements serve itself alone"
        )
    taken = _take_what_is_allowed(contract, path, distribution, allowed)
    whose = f"the requirements that {distribution} ships in {path}, which are not gpuready's own"
    return taken.replace(framework=distribution, says=whose + taken.says.partition("own")[2])


def _take_what_is_allowed(contract: Contract, path: str, framework: str, allowed: Collection[str]) -> Contract:
    """Leave out the values of variables that may load code or redirect, and leave commands to a person."""
    ours = list_shipped_contracts(framework)
    values = {(row.name, row.value) for one in ours for row in one.variables}
    commands = {step.run for one in ours for step in one.steps}
    refused = [
        row
        for row in contract.variables
        if row.name not in allowed and not variables.is_settable(row.name) and (row.name, row.value) not in values
    ]
    return contract.replace(
        variables=tuple(_without_values(row) if row in refused else row for row in contract.variables),
        steps=tuple(step if step.run in commands else _by_hand(step) for step in contract.steps),
        says=_describe_file(path, [row.name for row in refused if row.value and "set" in row.access]),
        basis="foreign",
    )


def _list_known_packages() -> set[str]:
    """Return the distributions that the catalogue or a shipped contract names."""
    shipped = (contract for framework in list_frameworks() for contract in list_shipped_contracts(framework))
    needed = {need.key.removeprefix("package.") for one in shipped for need in one.requirements_for("package.*")}
    return {*list_packages(), *needed}


def _check_distribution(contract: Contract, framework: str, path: str) -> None:
    """BadContract where a known name would install another distribution."""
    own, known = contract.distribution or contract.framework, distribution_name(framework)
    if canonical_package_name(own) == canonical_package_name(known):
        return
    if has_contract(framework) or framework in _list_known_packages():
        raise BadContract(
            f"{path} installs {own} under the name {contract.framework}, which is {known}: "
            f'give the requirements their own name, framework = "{own}", and ask for that'
        )


def _without_values(row: ContractVariable) -> ContractVariable:
    return row.replace(access="read", value="", required=False, traits=())


def _by_hand(step: FixStep) -> FixStep:
    """Return a step whose commands are words for a person: no part of gpuready runs them, or writes them into a script."""
    command = f": {shlex.join(step.run)}" if step.run else ""
    return step.replace(does=step.does + command, run=(), undo=(), safety="manual")


def _describe_file(path: str, refused: list[str]) -> str:
    whose = f"the file of requirements {path}, which is not one of gpuready's own"
    if not refused:
        return whose
    names = ", ".join(dict.fromkeys(refused))
    return f"{whose}; not set, since they may load code or redirect: {names} (`gpuready env --allow-variable NAME` sets one)"
