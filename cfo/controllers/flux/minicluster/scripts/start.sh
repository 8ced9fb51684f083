# Runs a container that does not run Flux, next to the one that does. Its command can reach the broker at ${fluxsocket}.

run_quietly "${hook_init}"
use_view
if [ ! -e "${view_root}/flux-view.sh" ]; then
  write_view_scripts
fi
run_quietly "${hook_service_pre}"
export fluxsocket="local://${socket_path}"
eval "${environment}"
if [ "${wait_for_socket}" = true ]; then
  log "Waiting for the broker's socket ${socket_path}."
  until [ -S "${socket_path}" ]; do
    sleep 1
  done
fi
if [ -n "${hook_script}" ]; then
  write_custom_script
  command="/bin/bash ${custom_script}"
fi
eval "${command}"
exit_code=$?
run_hook "${hook_post}"
post_code=$?
if [ -z "${command}" ]; then  # its work is in the hooks
  exit_code="${post_code}"
fi
exit "${exit_code}"
