from rankplan._core import RankSet, RankMap, Inventory, Pool
