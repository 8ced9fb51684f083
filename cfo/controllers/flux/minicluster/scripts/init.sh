# Prepares the volume that the containers of this pod share: the configuration of the broker, and Flux itself.
# All files are overwritten, because a restarted container finds those of its first run.
set -eu -o pipefail

system="${config_root}/etc/flux/system"
mkdir -p "${system}/cron.d" "${config_root}/etc/flux/config" "${config_root}/etc/curve" \
  "${config_root}/curve" "${config_root}/var/lib/flux" "${config_root}/run/flux" "${view_root}/view/bin"
printf '%s\n' "${hostlist}" > "${system}/hostlist"
printf '%s' "${broker_config}" > "${config_root}/etc/flux/config/broker.toml"

if [ "${quiet}" = false ]; then
  echo "Hosts: ${hostlist}"
  echo "Configuration of the broker:"
  cat "${config_root}/etc/flux/config/broker.toml"
fi

if [ "${copy_view}" = true ]; then
  for directory in "${views_path}"/*/; do
    if [ ! -d "${directory}" ]; then
      echo "The image has no Flux view: ${views_path} is empty. Check spec.flux.container.image." >&2
      exit 1
    fi
    rm -rf "${view_root}/view"
    mkdir -p "${view_root}/view/bin"
    cp -R "${directory}." "${view_root}/view/"
  done
  rm -rf "${view_root}/software"
  if [ -d "${software_path}" ]; then
    cp -R "${software_path}" "${view_root}/software"
  fi
fi
touch "${view_root}/flux-operator-done.txt"
