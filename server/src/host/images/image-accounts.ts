/**
 * Whose images are. An image belongs to the projects that pulled it, imported it, or made a sandbox from it,
 * and counts for each of them as a whole: otherwise a project could have others pay for what it uses. A
 * project that is at its limit loses those of its own images that it does not use, the longest unused first.
 */
import { CayError } from '@cay/sdk/protocol';
import type { ImageIndex, ImageRecord } from './image-index.ts';

/** What the control plane knows about projects. */
export interface ImageShares {
  /** What the images of a project may take. Null means any amount. */
  limit(project: string): Promise<number | null>;
  /** Digests of the images that its sandboxes and snapshots were made from. */
  uses(project: string): Promise<ReadonlySet<string>>;
}

/** Images of one project. Each is a chain of trees, however small. */
const MOST_IMAGES = 1000;

export class ImageAccounts {
  shares: ImageShares | undefined;
  readonly #index: Pick<ImageIndex, 'images' | 'treeBytes'>;
  readonly #now: () => number;

  constructor(index: Pick<ImageIndex, 'images' | 'treeBytes'>, now: () => number) {
    this.#index = index;
    this.#now = now;
  }

  /** What the images of a project take, what they share counted once. */
  taken(project: string): number {
    return this.#sum(new Set(this.#of(project).flatMap(({ trees }) => trees)));
  }

  /** What these trees would add for a project. */
  newBytes(project: string, trees: readonly string[]): number {
    const own = new Set(this.#of(project).flatMap((image) => image.trees));
    return this.#sum(new Set(trees.filter((tree) => !own.has(tree))));
  }

  /** Notes that a project uses an image now. */
  note(record: ImageRecord, project: string | undefined): void {
    if (project !== undefined) record.users = { ...record.users, [project]: this.#now() };
  }

  /**
   * Makes room for an image in the account of a project. `bytes` is what it adds at least. Rejects
   * `resource_exhausted`.
   */
  async admit(project: string | undefined, image: ImageRecord, bytes: number): Promise<void> {
    if (project === undefined || !this.shares) return;
    const limit = await this.shares.limit(project);
    const over = () =>
      this.#of(project).length > MOST_IMAGES || (limit !== null && this.taken(project) + bytes > limit);
    if (over()) await this.#release(project, image, over);
    if (over()) throw this.#exceeded(project, limit, bytes);
  }

  /**
   * An image turned out to be larger than its project has room for. Gives up some of the project's other
   * images, and resolves whether there is more room now.
   */
  async makeRoom(project: string | undefined, image: ImageRecord, most: number): Promise<boolean> {
    const room = await this.mostBytes(project, image, most);
    if (project === undefined || room >= most) return false;
    const before = this.taken(project);
    // Twice as much each time, so that a large image is not begun again for each small one that goes.
    const wanted = Math.max(room, 1024 * 1024);
    await this.#release(project, image, () => before - this.taken(project) < wanted);
    return this.taken(project) < before;
  }

  /**
   * Gives up images of a project that it does not use, the longest unused first, while there are too many.
   */
  async #release(project: string, except: ImageRecord, tooMany: () => boolean): Promise<void> {
    const used = await this.shares!.uses(project);
    const oldest = this.#of(project).toSorted((a, b) => a.users![project]! - b.users![project]!);
    for (const one of oldest) {
      if (!tooMany()) return;
      if (one.digest === except.digest || one.state !== 'whole' || used.has(one.digest)) continue;
      const { [project]: _gone, ...others } = one.users!;
      one.users = others;
    }
  }

  /** What an image of a project may have in all, what is there of it included. */
  async mostBytes(project: string | undefined, image: ImageRecord, most: number): Promise<number> {
    const limit = project === undefined ? null : ((await this.shares?.limit(project)) ?? null);
    if (limit === null) return most;
    return Math.min(most, limit - this.taken(project!) + this.#sum(new Set(image.trees)));
  }

  /** The error for an image that turned out to be larger than its project's room, if that is why. */
  async explain(
    project: string | undefined,
    image: ImageRecord,
    most: number,
  ): Promise<CayError | undefined> {
    const room = await this.mostBytes(project, image, most);
    if (room >= most) return undefined;
    return this.#exceeded(project!, await this.shares!.limit(project!), undefined);
  }

  #of(project: string): ImageRecord[] {
    return [...this.#index.images.values()].filter(({ users }) => users?.[project] !== undefined);
  }

  #sum(trees: ReadonlySet<string>): number {
    let bytes = 0;
    for (const tree of trees) bytes += this.#index.treeBytes.get(tree) ?? 0;
    return bytes;
  }

  #exceeded(project: string, limit: number | null, asked: number | undefined): CayError {
    const used = this.taken(project);
    const more = asked === undefined ? 'this image' : `${asked} more`;
    return new CayError(
      'resource_exhausted',
      `The project's quota of ${limit ?? `${MOST_IMAGES} images, whatever their`} bytes of images does not allow ${more}: ${used} are in use`,
      {
        details: { quota: 'imageBytes', limit, used, ...(asked !== undefined && { asked }) },
        hint: 'remove sandboxes and snapshots of images that are not needed, or have the quota raised',
      },
    );
  }
}
