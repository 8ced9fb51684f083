# Runs one Flux broker. The pod with index 0 runs the lead broker, which runs the command; the others follow it.
# The exit code is the command's.

child=""
stopping=false
signals=0
stop() {
  stopping=true
  signals=$((signals + 1))
  if [ -n "${child}" ]; then
    kill -TERM "${child}" 2> /dev/null || true
  fi
}
trap stop TERM

# Runs a command and passes SIGTERM on to it, which a shell that is process 1 ignores otherwise.
run() {
  local status before
  "$@" <&0 &
  child=$!
  if [ "${stopping}" = true ]; then  # since before the child was known
    stop
  fi
  while true; do
    before="${signals}"
    status=0
    wait "${child}" || status=$?
    if [ "${signals}" = "${before}" ]; then
      break
    fi
    # The signal may have interrupted wait. The status of the child remains available, also if it has ended since.
  done
  child=""
  return "${status}"
}

# The broker refuses a certificate that others can read, and the volume is read-only.
install_certificate() {
  local target="${config_root}/curve/curve.cert"
  mkdir -p "${config_root}/curve"
  rm -f "${target}"
  (umask 077 && cat "${scripts_path}curve.cert" > "${target}")
  chown "$(id -u)" "${target}" 2> /dev/null || true
}

# Prints the script that "flux batch" runs: each line of the command is a job, or with batchRaw just a line.
write_batch() {
  local line index=0
  echo '#!/bin/bash'
  if [ "${batch_raw}" = true ]; then
    printf '%s\n' "${command%$'\n'}"
    return
  fi
  while read -r line; do
    case "${line}" in
      \#*) echo "${line}" ;;
      '') ;;
      *) printf 'flux submit --flags waitable --error=%q --output=%q %s\n' \
        "${FLUX_OUTPUT_DIR}/job-${index}.err" "${FLUX_OUTPUT_DIR}/job-${index}.out" "${line}" ;;
    esac
    index=$((index + 1))
  done <<< "${command%$'\n'}"
  printf 'flux queue idle\nflux jobs -a\n'
}

run_lead() {
  local prefix=() submit=() flags=() timer=() words=()
  run_quietly "${hook_broker_pre}"
  if [ "${timed}" = true ]; then
    timer=(/usr/bin/time -f "FLUXTIME fluxsubmit wall time %E")
  fi
  split_words "${hook_prefix}"
  prefix=("${words[@]+"${words[@]}"}")
  split_words "${option_flags}"
  flags=("${submit_flags[@]+"${submit_flags[@]}"}" "${words[@]+"${words[@]}"}")
  split_words "${submit_command}"
  submit=("${words[@]}")
  if [ "${command_mode}" = batch ]; then
    write_batch > flux-job.batch
    chmod +x flux-job.batch
    # shellcheck disable=SC2016 # expanded by the inner shell
    start "${timer[@]+"${timer[@]}"}" "${prefix[@]+"${prefix[@]}"}" bash -c \
      'flux batch "$@" --flags waitable ./flux-job.batch && flux job wait --all' bash "${flags[@]+"${flags[@]}"}"
    return
  fi
  if [ -n "${hook_script}" ]; then
    words=(/bin/bash "${custom_script}")
  else
    split_words "${command}"
  fi
  if [ "${#words[@]}" -eq 0 ]; then
    log "There is no command: the broker runs until the MiniCluster is deleted."
    run flux broker "${broker_options[@]}"
  elif [ "${command_mode}" = launcher ]; then
    start "${timer[@]+"${timer[@]}"}" "${prefix[@]+"${prefix[@]}"}" "${words[@]}"
  else
    start "${timer[@]+"${timer[@]}"}" "${prefix[@]+"${prefix[@]}"}" "${submit[@]}" \
      "${flags[@]+"${flags[@]}"}" --quiet --watch "${words[@]}"
  fi
}

run_follower() {
  local status=0 wrap=()
  run_quietly "${hook_worker_pre}"
  while [ "${stopping}" = false ]; do
    status=0
    start || status=$?
    if [ "${status}" -eq 0 ] || [ "${complete_workers}" = true ]; then
      return 0
    fi
    if [ "${stopping}" = true ]; then
      break
    fi
    log "The broker ended with exit code ${status}. It is started again in ${retry_seconds} seconds."
    run sleep "${retry_seconds}" || true
  done
  return "${status}"
}

start() {
  local timer=()
  if [ "${timed}" = true ]; then
    timer=(/usr/bin/time -f "FLUXTIME fluxstart wall time %E")
  fi
  run "${timer[@]+"${timer[@]}"}" flux start "${wrap[@]+"${wrap[@]}"}" "${broker_options[@]}" "$@"
}

if [ "${timed}" = true ] && [ ! -x /usr/bin/time ]; then
  echo "logging.timed needs /usr/bin/time in the image." >&2
  exit 1
fi
run_quietly "${hook_init}"
use_view
write_view_scripts
eval "${environment}"
if [ -n "${hook_script}" ]; then
  write_custom_script
fi
install_certificate
export FLUX_OUTPUT_DIR="${output_path}" STATE_DIR="${config_root}/var/lib/flux"
mkdir -p "${STATE_DIR}" "${config_root}/run/flux" "${config_root}/etc/flux/system" "${FLUX_OUTPUT_DIR}"
flux R encode --hosts="${hostlist}" --local > "${config_root}/etc/flux/system/R"
if [ -n "${archive_path}" ] && [ -e "${archive_path}" ]; then
  broker_options+=("-Scontent.restore=${archive_path}")
fi
run_quietly "${hook_pre}"

host="$(hostname 2> /dev/null || echo "${HOSTNAME:-}")"
log "This host is ${host}, the lead broker's is ${lead_host}."
finish() {
  local status=$?
  touch "${view_root}/flux-operator-complete.txt" || true
  exit "${status}"
}
trap finish EXIT
# A restarted container finds the exit code of a command that failed and is not to be run again.
failure="${view_root}/flux-operator-exit-code"
if [ "${retry_command}" = false ] && [ -s "${failure}" ]; then
  exit "$(cat "${failure}")"
fi
# The functions are not called in a condition, where a shell ignores "set -e".
if [ "${host}" = "${lead_host}" ]; then
  run_lead
else
  run_follower
fi
exit_code=$?
if [ "${host}" = "${lead_host}" ] && [ "${exit_code}" -ne 0 ] && [ "${stopping}" = false ]; then
  echo "${exit_code}" > "${failure}"
fi
run_hook "${hook_post}"
exit "${exit_code}"
