"""Import the modules that a framework's own commands start from; what they need and is not installed is named."""

import package_import
import proof


def run_proof(p):
    p.torch()
    for module in p.arguments:
        package_import.import_compiled(p, module, p.arguments[0].partition(".")[0])
    p.record_number("modules", len(p.arguments), "equal", len(p.arguments))


if __name__ == "__main__":
    proof.main(run_proof)
