// @kubernetes/client-node: typed and custom objects, watch, informer, server-side apply, patches, exec and errors.
// Runs in the folder in which the client is installed, with KUBECONFIG in the environment.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const k8s = await import(require.resolve("@kubernetes/client-node"));

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const namespace = "node";

const status = async (call) => {
  try {
    await call();
  } catch (error) {
    return error.code ?? error.statusCode;
  }
  return 200;
};

const until = (what, subscribe) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`timeout: ${what}`)), 20000);
    subscribe((value) => (clearTimeout(timer), resolve(value)), reject);
  });

const checks = {
  async typed() {
    await core.createNamespace({ body: { metadata: { name: namespace } } });
    const created = await core.createNamespacedConfigMap({
      namespace,
      body: { metadata: { name: "a", labels: { app: "a" } }, data: { k: "v" } },
    });
    assert.ok(created.metadata.uid);
    assert.ok(created.metadata.creationTimestamp instanceof Date);
    const list = await core.listNamespacedConfigMap({ namespace, labelSelector: "app=a" });
    assert.deepEqual(list.items.map((item) => item.data), [{ k: "v" }]);
    await core.replaceNamespacedConfigMap({ name: "a", namespace, body: { ...created, data: { k: "w" } } });
    assert.equal(await status(() => core.replaceNamespacedConfigMap({ name: "a", namespace, body: created })), 409);
    assert.equal(await status(() => core.readNamespacedConfigMap({ name: "none", namespace })), 404);
    assert.equal(await status(() => core.createNamespace({ body: { metadata: { name: "Bad" } } })), 422);
  },

  async patches() {
    const patch = (body, kind) =>
      core.patchNamespacedConfigMap(
        { name: "a", namespace, body },
        k8s.setHeaderOptions("Content-Type", kind),
      );
    await patch([{ op: "replace", path: "/data/k", value: "json" }], k8s.PatchStrategy.JsonPatch);
    await patch({ data: { merge: "m" } }, k8s.PatchStrategy.MergePatch);
    const patched = await patch({ data: { strategic: "s" } }, k8s.PatchStrategy.StrategicMergePatch);
    assert.deepEqual(patched.data, { k: "json", merge: "m", strategic: "s" });
  },

  async watch() {
    const seen = [];
    const { metadata } = await core.listNamespacedSecret({ namespace });
    let request;
    await until("watch", async (resolve, reject) => {
      request = await new k8s.Watch(config).watch(
        `/api/v1/namespaces/${namespace}/secrets`,
        { resourceVersion: metadata.resourceVersion },
        (type, object) => {
          seen.push(`${type} ${object.metadata.name}`);
          if (type === "DELETED") resolve();
        },
        (error) => error && error.name !== "AbortError" && reject(error),
      );
      await core.createNamespacedSecret({ namespace, body: { metadata: { name: "s" }, stringData: { k: "v" } } });
      await core.deleteNamespacedSecret({ name: "s", namespace });
    });
    request.abort();
    assert.deepEqual(seen, ["ADDED s", "DELETED s"]);
  },

  async informer() {
    const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, () =>
      core.listNamespacedConfigMap({ namespace, labelSelector: "informed" }), "informed");
    const events = [];
    await until("informer", async (resolve, reject) => {
      for (const kind of ["add", "update", "delete"]) {
        informer.on(kind, (object) => {
          events.push(`${kind} ${object.metadata.name}`);
          if (kind === "delete") resolve();
        });
      }
      informer.on("error", reject);
      await informer.start();
      await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: "i", labels: { informed: "" } } } });
      await core.patchNamespacedConfigMap(
        { name: "i", namespace, body: { data: { k: "v" } } },
        k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.MergePatch),
      );
      await core.deleteNamespacedConfigMap({ name: "i", namespace });
    });
    await informer.stop();
    assert.deepEqual(events, ["add i", "update i", "delete i"]);
  },

  async apply() {
    const objects = k8s.KubernetesObjectApi.makeApiClient(config);
    const body = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "applied", namespace }, data: { k: "v" } };
    const send = (manager, force) =>
      objects.patch(body, undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
    const applied = await send("first", false);
    assert.equal(applied.metadata.managedFields[0].operation, "Apply");
    body.data.k = "w";
    assert.equal(await status(() => send("second", false)), 409);
    assert.equal((await send("second", true)).data.k, "w");
    assert.equal((await objects.read(body)).data.k, "w");
    await objects.delete(body);
    assert.equal(await status(() => objects.read(body)), 404);
  },

  async custom() {
    const custom = config.makeApiClient(k8s.CustomObjectsApi);
    const extensions = config.makeApiClient(k8s.ApiextensionsV1Api);
    const schema = { type: "object", properties: { spec: { type: "object", x_kubernetes_preserve_unknown_fields: true } } };
    await extensions.createCustomResourceDefinition({
      body: {
        metadata: { name: "nuts.node.example.com" },
        spec: {
          group: "node.example.com",
          scope: "Namespaced",
          names: { plural: "nuts", kind: "Nut" },
          versions: [{ name: "v1", served: true, storage: true, schema: { openAPIV3Schema: schema } }],
        },
      },
    });
    const where = { group: "node.example.com", version: "v1", namespace, plural: "nuts" };
    const body = { apiVersion: "node.example.com/v1", kind: "Nut", metadata: { name: "n" }, spec: { size: 1 } };
    await until("established", async (resolve) => {
      while ((await status(() => custom.listNamespacedCustomObject(where))) !== 200) {
        await new Promise((again) => setTimeout(again, 20));
      }
      resolve();
    });
    assert.deepEqual((await custom.createNamespacedCustomObject({ ...where, body })).spec, { size: 1 });
    const { items } = await custom.listNamespacedCustomObject(where);
    assert.deepEqual(items.map((item) => item.metadata.name), ["n"]);
  },

  async workloads() {
    const apps = config.makeApiClient(k8s.AppsV1Api);
    const labels = { app: "web" };
    const spec = { containers: [{ name: "web", image: "nginx:1" }] };
    await apps.createNamespacedDeployment({
      namespace,
      body: {
        metadata: { name: "web" },
        spec: { replicas: 2, selector: { matchLabels: labels }, template: { metadata: { labels }, spec } },
      },
    });
    let request;
    await until("available", async (resolve) => {
      request = await new k8s.Watch(config).watch(
        `/apis/apps/v1/namespaces/${namespace}/deployments`,
        {},
        (_, object) => object.status?.availableReplicas === 2 && resolve(),
        () => {},
      );
    });
    request.abort();
    const pods = await core.listNamespacedPod({ namespace, labelSelector: "app=web" });
    assert.equal(pods.items.length, 2);
    const log = await core.readNamespacedPodLog({ name: pods.items[0].metadata.name, namespace });
    assert.equal(typeof log, "string");
    const { status: review } = await config
      .makeApiClient(k8s.AuthenticationV1Api)
      .createSelfSubjectReview({ body: {} });
    assert.equal(review.userInfo.username, "admin");
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(name);
}
process.exit(0);
