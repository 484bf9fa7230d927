import { isCayError, type Limits, type Mount, type SandboxId } from '@cay/sdk/protocol';
import type { InstanceFacts } from '../../host/instances/instance.ts';
import type { PreparedTemplate } from '../../host/templates/template.ts';
import { newName, quotaOf, type Engine } from './engine.ts';
import { pickRuntime } from './pick-runtime.ts';
import { planMounts, requireFreeOf } from './plan-mounts.ts';
import type { TemplateParts } from './sandbox-record.ts';

export interface Wanted {
  template: string;
  runtime?: string | undefined;
  readOnlyRoot?: boolean;
  limits?: Limits;
  mounts?: Mount[] | undefined;
  user?: string;
}

export interface PlanOptions {
  pooled?: boolean;
  sandbox?: SandboxId;
  hostname?: string;
  /** The tree that it has already; absent, it gets a clone of the template. */
  on?: { tree?: string; footing?: TemplateParts | undefined };
  /** Whom an image counts for. */
  project?: string | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * Chooses runtime, template tree and name of a new instance. Every start comes through here, so that a
 * runtime that is not allowed is refused here.
 */
export async function plan(
  engine: Engine,
  wanted: Wanted,
  { pooled = false, sandbox, hostname, on, project, signal }: PlanOptions = {},
): Promise<InstanceFacts> {
  const runtime = await pickRuntime(engine, wanted.runtime);
  const footing =
    on?.footing ??
    templatePartsOf(await engine.templates.prepare(wanted.template, runtime.ids, { project, signal }));
  requireFreeOf(wanted, footing.binds);
  const mounts = planMounts(engine, wanted.mounts, { sandbox, user: wanted.user });
  const name = newName.instance();
  return {
    name,
    runtime: runtime.name,
    template: wanted.template,
    ...footing,
    tree: on?.tree ?? name,
    ...(mounts.length > 0 && { mounts }),
    readOnlyRoot: wanted.readOnlyRoot ?? false,
    openFiles: wanted.limits?.openFiles ?? engine.usual.openFiles,
    bootId: engine.resources.bootId,
    pooled,
    ...(hostname !== undefined && { hostname }),
  };
}

/**
 * Makes the tree of an instance from its template. A template that was removed is made again, and `facts`
 * changed to it.
 */
export async function cloneTemplate(
  { resources, templates }: Engine,
  facts: InstanceFacts,
  limits?: Limits,
): Promise<void> {
  const how = limits && { quotaBytes: quotaOf(resources, limits) };
  try {
    await resources.trees.prepare(facts.tree, { parent: facts.templateTree, ...how });
  } catch (error) {
    if (!isCayError(error, 'not_found')) throw error;
    templates.forget(facts.template);
    Object.assign(
      facts,
      templatePartsOf(await templates.prepare(facts.template, resources.runtimes.get(facts.runtime)!.ids)),
    );
    await resources.trees.prepare(facts.tree, { parent: facts.templateTree, ...how });
  }
}

export function templatePartsOf({ tree, binds, image }: PreparedTemplate): TemplateParts {
  return { templateTree: tree, binds, ...(image && { image }) };
}

/** The template tree, bind mounts and image of an instance. */
export function templatePartsIn({ templateTree, binds, image }: TemplateParts): TemplateParts {
  return { templateTree, binds, ...(image && { image }) };
}
