"""A fit that is killed in the middle, as a program: its argument is the folder it saves to."""

import os
import signal
import sys
import threading

import jax

from latent_features.feature_fits import GAPS, N_CHAINS, N_WARMUP, fit
from saving import saving_at_once
from wideangle.latent_features.files import ChainCheckpoint

LAST = N_WARMUP + 3


def main() -> None:
    jax.config.update("jax_enable_x64", True)  # as in the tests
    save, met = ChainCheckpoint.save_chain, threading.Barrier(N_CHAINS)

    def kill_after(self, chain, *, now=False):
        save(self, chain, now=now)
        if chain.n_done == LAST:
            met.wait()  # until every chain has been saved
            os.kill(os.getpid(), signal.SIGKILL)

    ChainCheckpoint.save_chain = kill_after
    with saving_at_once():
        fit(GAPS, checkpoint=sys.argv[1], n_jobs=N_CHAINS)


if __name__ == "__main__":
    main()
