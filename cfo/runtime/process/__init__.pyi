from . import logs as logs
