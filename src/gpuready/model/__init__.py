"""Records of all results. Facts, contracts and reports are imported here; each other module is imported alone."""

from gpuready.model.contract import Capability as Capability
from gpuready.model.contract import Contract as Contract
from gpuready.model.contract import ContractVariable as ContractVariable
from gpuready.model.contract import FixStep as FixStep
from gpuready.model.contract import KnownError as KnownError
from gpuready.model.contract import Requirement as Requirement
from gpuready.model.facts import NOT_STATED as NOT_STATED
from gpuready.model.facts import SCHEMA as SCHEMA
from gpuready.model.facts import Fact as Fact
from gpuready.model.facts import Facts as Facts
from gpuready.model.facts import UnknownFactError as UnknownFactError
from gpuready.model.record import Record as Record
from gpuready.model.report import EXIT_CODES as EXIT_CODES
from gpuready.model.report import Finding as Finding
from gpuready.model.report import IgnoredFinding as IgnoredFinding
from gpuready.model.report import PassedRule as PassedRule
from gpuready.model.report import Report as Report
from gpuready.model.report import Rule as Rule
from gpuready.model.report import UndecidedRule as UndecidedRule
from gpuready.model.report import make_finding as make_finding
from gpuready.model.report import worst_verdict as worst_verdict
