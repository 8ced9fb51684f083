# Shared by the container that runs Flux and by its sidecars.

# Variables of the Go operator's scripts, for hooks and commands.
viewbase="${view_root}" viewroot="${view_root}/view" configroot="${config_root}" software="${view_root}/software"
viewbin="${viewroot}/bin" fluxpath="${viewroot}/bin/flux" cfg="${config_root}/etc/flux/config" workdir="${PWD}"
fluxuid="$(id -u)" fluxuser="$(id -un 2> /dev/null || echo unknown)"

log() {
  if [ "${quiet}" = false ]; then
    echo "$*"
  fi
}

# Runs a hook of the spec in this shell, so that it can set variables for what follows.
run_hook() {
  if [ -n "$1" ]; then
    eval "$1"
  fi
}

# Runs a hook that prepares something: its output is not the job's.
run_quietly() {
  if [ "${quiet}" = true ]; then
    run_hook "$1" > /dev/null
  else
    run_hook "$1"
  fi
}

# Splits a command line into the array "words". Quotes, variables and substitutions work as in a shell. A line that is
# not a list of words, because it has operators or an unpaired quote, is split at blanks and passed on literally.
split_words() {
  words=()
  if "${BASH}" -n -c "words=( $1"$'\n'" )" 2> /dev/null; then
    eval "words=( $1"$'\n'" )"
  else
    IFS=$' \t\n' read -r -d '' -a words < <(printf '%s\0' "$1") || true
  fi
}

use_view() {
  if [ "${copy_view}" = false ]; then
    return
  fi
  if [ "${HOME:-/}" = / ]; then
    export HOME="${home_path}" USER=flux-operator
  fi
  if [ "${use_fluxion}" = true ]; then
    export FLUX_RC_EXTRA="${view_root}/view/etc/flux/rc1.d"
  fi
  export PATH="${PATH}:${view_root}/view/bin"
  if [ -d "${view_root}/software" ] && [ -d "${software_path}" ]; then
    cp -R "${view_root}/software/." "${software_path}/"
  fi
  link_python
}

# The view has Python in a directory that its link may not point to after it was copied.
link_python() {
  local candidate libraries=""
  for candidate in "${view_root}"/view/bin/python3.*; do
    case "${candidate##*/}" in
      *[!0-9.python]*) continue ;;
    esac
    if [ -x "${candidate}" ]; then
      ln -sfn "$(readlink -f "${candidate}")" "${view_root}/view/bin/python3"
      libraries="${view_root}/view/lib/${candidate##*/}/site-packages"
      break
    fi
  done
  python_path="${python_path:-${libraries}}"
  if [ -n "${python_path}" ]; then
    export PYTHONPATH="${PYTHONPATH:+${PYTHONPATH}:}${python_path}"
  fi
}

# The containers of a pod share these files, so a reader must never find a part of one.
write_view_scripts() {
  cat > "${view_root}/load-fluxion.sh" << 'END'
#!/bin/bash
flux module remove sched-simple
flux module load sched-fluxion-resource
flux module load sched-fluxion-qmanager
END
  local temporary="${view_root}/.${0##*/}.view"
  {
    echo '#!/bin/bash'
    printf 'export PATH=%q\n' "${PATH}"
    printf 'export PYTHONPATH=%q\n' "${PYTHONPATH:-}"
    printf 'export LD_LIBRARY_PATH=%q\n' "${LD_LIBRARY_PATH:+${LD_LIBRARY_PATH}:}${view_root}/view/lib"
    printf 'export fluxsocket=%q\n' "local://${socket_path}"
    printf '%s' "${environment}"
  } > "${temporary}"
  printf '#!/bin/bash\n. %q\nexec flux proxy "${fluxsocket}" bash\n' "${view_root}/flux-view.sh" \
    > "${view_root}/flux-connect.sh"
  chmod +x "${view_root}/load-fluxion.sh" "${temporary}" "${view_root}/flux-connect.sh"
  mv "${temporary}" "${view_root}/flux-view.sh"
}

write_custom_script() {
  printf '%s\n' "${hook_script}" > "${custom_script}"
  chmod +x "${custom_script}"
}
