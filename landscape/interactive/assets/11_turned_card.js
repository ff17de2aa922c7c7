// From where a card's surface is seen: as chosen for all, as the reader turned it, or as the card that it follows.

class TurnedCard extends PointedCard {
  // Whether there is a surface whose camera can be read and moved.
  get turnable() {
    return Boolean(this.surface._fullLayout?.scene);
  }

  // The camera as nine numbers.
  get seen() {
    return cameraOf(this.surface);
  }

  // Whether the reader turned the surface, or it follows one that was turned.
  get moved() {
    return Boolean(this.usualCamera) && this.turnable && areFar(this.seen, this.usualCamera, 1e-3);
  }

  // From where to draw a scene with this usual camera. Plotly keeps what a mouse turned, but not what keys, a link or another
  // card did; another choice of "View from" undoes all of it.
  chooseCamera(usual) {
    const before = this.usualCamera;
    const leader = this.comparison.leader(this);
    const kept = this.camera?.chosen === this.settings.camera && (this.moved || !before);
    let view = usual;
    if (leader) view = lookingLike(leader.seen, leader.usualCamera, usual);
    else if (kept) view = before ? lookingLike(this.seen, before, usual) : this.camera.view;
    this.usualCamera = usual;
    this.camera = { view, chosen: this.settings.camera };
    return cameraFrom(view);
  }

  async turn(camera) {
    this.following = true;
    await Plotly.relayout(this.surface, { "scene.camera": cameraFrom(camera) });
    this.following = false;
  }
}
