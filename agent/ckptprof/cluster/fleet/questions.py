"""All that can be asked, at one place."""

from ckptprof.cluster.fleet.collisions import collisions
from ckptprof.cluster.fleet.costs import costs
from ckptprof.cluster.fleet.limits import limits
from ckptprof.cluster.fleet.newest import newest
from ckptprof.cluster.fleet.nodes import nodes
from ckptprof.cluster.fleet.stragglers import stragglers

__all__ = ["collisions", "costs", "limits", "newest", "nodes", "stragglers"]
