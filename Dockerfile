# The image is the static binary and nothing else: no shell, no package, nothing to patch but it. `make image` builds both.
FROM scratch
COPY bin/fairlead /fairlead
# Empty folders with an owner, so that volumes mounted on them belong to the user below.
COPY --chown=10001:10001 bin/root/ /
USER 10001:10001
ENTRYPOINT ["/fairlead"]
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=5 CMD ["/fairlead", "health"]
