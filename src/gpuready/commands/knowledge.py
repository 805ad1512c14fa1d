"""Use the knowledge file that a command line names."""

from __future__ import annotations

from gpuready.commands.declaration import Request


def apply_knowledge(request: Request) -> None:
    """Verify and use the file of ``--knowledge``, before anything is looked up, and say which one it is."""
    name = request.get_option("knowledge")
    if name is not None:
        from gpuready.workflow.knowledge import use_knowledge_file

        request.session.write_sentence(use_knowledge_file(name))
