"""Sum up the songs of each Playlist, a kind that a class declares: the CRD is generated from it."""

import sys
from typing import Annotated

import anyio
import structlog
from pydantic import Field

from cfo.runtime import (
    APIModel,
    Builder,
    CELRule,
    Client,
    ClientConfig,
    ConfigError,
    CustomResource,
    Int32,
    Int64,
    Manager,
    ManagerOptions,
    PrinterColumn,
    Request,
    Result,
    ValueChanged,
    load_config,
    logs,
)
from cfo.runtime.client import apply_status
from cfo.runtime.controller import RunnableFailed
from cfo.runtime.objects import list_map

log = structlog.get_logger("playlists")

LIMIT = CELRule(
    rule="!has(self.maxSongs) || size(self.songs) <= self.maxSongs",
    message="must not have more songs than maxSongs",
)


class Song(APIModel):
    """A song; its title identifies it."""

    title: str = Field(min_length=1, max_length=100)
    seconds: Int32 = Field(gt=0)


class PlaylistSpec(APIModel, validations=[LIMIT]):
    """The songs of a Playlist."""

    songs: Annotated[list[Song], list_map("title")] = Field(max_length=1000)
    max_songs: Int32 | None = None
    note: str = Field(default="", description="Free text.")


class PlaylistStatus(APIModel):
    """What was computed from the songs."""

    observed_generation: Int64 = 0
    total_seconds: Int64 = 0


class Playlist(
    CustomResource,
    group="example.com",
    version="v1",
    short_names=["pl"],
    printer_columns=[PrinterColumn("Seconds", ".status.totalSeconds", "integer")],
):
    """A list of songs."""

    spec: PlaylistSpec
    status: PlaylistStatus = Field(default_factory=PlaylistStatus)


class PlaylistReconciler:
    """Writes the total duration into the status."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def reconcile(self, request: Request) -> Result:
        """Apply the status of the Playlist named ``request``; only the fields that are set here are owned."""
        playlist = await self.client.get(Playlist, request)
        if playlist is None or playlist.is_deleting:
            return Result()
        total = sum(song.seconds for song in playlist.spec.songs)
        status = PlaylistStatus(
            observed_generation=playlist.metadata.generation, total_seconds=total
        )
        await apply_status(self.client, playlist, status)
        log.info("Summed up the songs", songs=len(playlist.spec.songs), seconds=total)
        return Result()


def new_manager(config: ClientConfig) -> Manager:
    """Return a manager that reconciles a Playlist when its songs change."""
    manager = Manager(config, ManagerOptions(field_manager="playlists"))
    changed = ValueChanged(Playlist, lambda playlist: playlist.spec.songs)
    Builder(manager).for_(Playlist, changed).complete(PlaylistReconciler(manager.client))
    return manager


async def main() -> None:
    """Run until SIGTERM or SIGINT."""
    logs.configure()
    await new_manager(await load_config()).run(handle_signals=True)


if __name__ == "__main__":
    try:
        anyio.run(main)
    except (ConfigError, RunnableFailed) as error:
        sys.exit(str(error))
