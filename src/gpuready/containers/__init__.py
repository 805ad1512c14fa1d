"""Read Dockerfiles and compose files: what they state of the machine inside the container. Nothing is executed."""
